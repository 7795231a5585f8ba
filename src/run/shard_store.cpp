// The shard store.
#include "run/shard_store.h"

#include <algorithm>

#include "core/device.h"
#include "core/error.h"
#include "core/parallel.h"
#include "core/philox.h"

namespace vitrine {
namespace {
static_assert(kShardChunk % kNormChunk == 0, "a shard must not cut a chunk of the norm");

std::byte* bytes_at(void* base, size_t offset) { return static_cast<std::byte*>(base) + offset; }
}  // namespace

ShardStore::ShardStore(const ParameterTable& table,
                       const Strategy& strategy,
                       const MeshPlace& place,
                       const std::vector<int>& blocks,
                       uint64_t seed,
                       MemoryLedger& ledger)
    : table_(table),
      strategy_(strategy),
      ranks_(strategy.mesh.data),
      rank_index_(place.data_index),
      seed_(seed),
      ledger_(ledger) {
  if (ranks_ == 1) strategy_.shard = {};  // nothing to share: every stage is the same
  slots_.resize(table.units.size());
  for (int u = 0; u < static_cast<int>(table.units.size()); ++u) {
    const Unit& unit = unit_of(u);
    Slot& slot = slots_[index(u)];
    slot.skipped = std::find(blocks.begin(), blocks.end(), unit.block) == blocks.end();
    if (slot.skipped) continue;
    slot.touched.assign(unit.parameters.size(), false);
    const int64_t full = padded_elements(unit.elements, ranks_), piece = shard(u).padded;
    const int64_t state = strategy_.shard.optimizer ? piece : full;
    using enum MemoryCategory;
    slot.parameters = Buffer(
        ledger, kParameters, unit.name, compute_bytes(sharded_parameters(u) ? piece : full), true);
    if (strategy_.separate_masters() && !unit.frozen) {
      slot.master = Buffer(ledger, kOptimizer, unit.name, static_cast<size_t>(state) * 4, true);
    }
    if (!unit.frozen) {
      const size_t bytes = static_cast<size_t>(state) * dtype_bytes(strategy_.moment_dtype);
      slot.exp_avg = Buffer(ledger, kOptimizer, unit.name, bytes, true);
      slot.exp_avg_sq = Buffer(ledger, kOptimizer, unit.name, bytes, true);
      slot.gradients = Buffer(ledger,
                              kGradients,
                              unit.name,
                              gradient_bytes(strategy_.shard.gradients ? piece : full),
                              true);
    }
    initialise(u);
  }
  device().synchronize();
}

// Every held element is made from its name and place, so ranks agree without talking.
void ShardStore::initialise(int u) {
  Slot& slot = slots_[index(u)];
  const ShardRange range = updated(u);
  const bool all = !sharded_parameters(u);
  const int64_t begin = all ? 0 : range.begin, end = all ? unit_of(u).elements : shard(u).end;
  constexpr int64_t kTile = int64_t{1} << 22;  // bounds the memory of the host beside a GPU
  std::vector<float> values;
  std::vector<std::byte> converted;
  for (const UnitParameter& p : unit_of(u).parameters) {
    const int64_t first = std::max(begin, p.offset), last = std::min(end, p.offset + p.elements);
    for (int64_t from = first; from < last; from += kTile) {
      const int64_t to = std::min(last, from + kTile), count = to - from;
      values.resize(static_cast<size_t>(count));
      converted.resize(compute_bytes(count));
      constexpr int64_t kGrain = 4096;
      parallel_for((count + kGrain - 1) / kGrain, 4, [&](int64_t a, int64_t b) {
        const int64_t at = a * kGrain, piece = std::min(count, b * kGrain) - at;
        float* made = values.data() + at;
        initial_values(p.init, seed_, p.name, from - p.offset + at, piece, made);
        convert(strategy_.compute_dtype,
                bytes_at(converted.data(), compute_bytes(at)),
                DType::kF32,
                made,
                piece);
      });
      device().upload(bytes_at(slot.parameters.data(), compute_bytes(from - begin)),
                      converted.data(),
                      converted.size());
      const int64_t mine_from = std::max(from, range.begin), mine_to = std::min(to, range.end);
      if (slot.master && mine_from < mine_to) {
        device().upload(static_cast<float*>(slot.master.data()) + (mine_from - range.begin),
                        values.data() + (mine_from - from),
                        static_cast<size_t>(mine_to - mine_from) * 4);
      }
    }
  }
}

bool ShardStore::sharded_parameters(int unit) const {
  return strategy_.shard.parameters && !unit_of(unit).persistent;
}
bool ShardStore::resident(int unit) const { return !sharded_parameters(unit); }

ShardRange ShardStore::shard(int unit) const {
  return shard_range(unit_of(unit).elements, rank_index_, ranks_);
}

ShardRange ShardStore::updated(int unit) const {
  if (strategy_.shard.optimizer) return shard(unit);
  const int64_t elements = unit_of(unit).elements;
  return {0, elements, padded_elements(elements, ranks_)};
}

TensorView ShardStore::parameter(ParameterUse use) const {
  const UnitParameter& p = table_.of(use);
  return {bytes_at(full_parameters(use.unit), compute_bytes(p.offset)),
          p.shape,
          strategy_.compute_dtype};
}

void* ShardStore::parameter_shard(int unit) const {
  const Slot& slot = slots_[index(unit)];
  if (sharded_parameters(unit)) return slot.parameters.data();
  return bytes_at(slot.parameters.data(), compute_bytes(updated(unit).begin));
}

void* ShardStore::full_parameters(int unit) const {
  const Slot& slot = slots_[index(unit)];
  if (resident(unit)) return slot.parameters.data();
  VITRINE_ASSERT(slot.gathered);
  return slot.gathered.data();
}

void ShardStore::open_gathered(int unit) {
  Slot& slot = slots_[index(unit)];
  VITRINE_ASSERT(!slot.gathered);
  slot.gathered = Buffer(ledger_,
                         MemoryCategory::kGathered,
                         unit_of(unit).name,
                         compute_bytes(padded_elements(unit_of(unit).elements, ranks_)));
}

void ShardStore::close_gathered(int unit) { slots_[index(unit)].gathered.reset(); }

void ShardStore::begin_step() {
  for (Slot& slot : slots_) {
    std::fill(slot.touched.begin(), slot.touched.end(), false);
    slot.squared = false;
  }
}

GradView ShardStore::gradient(ParameterUse use) {
  const Unit& unit = unit_of(use.unit);
  if (unit.frozen) return {};
  Slot& slot = slots_[index(use.unit)];
  if (strategy_.shard.gradients && !slot.transient) {
    slot.transient = Buffer(ledger_,
                            MemoryCategory::kCommunication,
                            unit.name,
                            gradient_bytes(padded_elements(unit.elements, ranks_)));
    std::fill(slot.touched.begin(), slot.touched.end(), false);
  }
  const auto p = static_cast<size_t>(use.parameter);
  const bool add = slot.touched[p];
  slot.touched[p] = true;
  const UnitParameter& parameter = unit.parameters[p];
  return {{bytes_at(full_gradients(use.unit), gradient_bytes(parameter.offset)),
           parameter.shape,
           strategy_.gradient_dtype},
          add};
}

void ShardStore::settle_gradients(int unit) {
  Slot& slot = slots_[index(unit)];
  auto* full = static_cast<std::byte*>(full_gradients(unit));
  const Unit& u = unit_of(unit);
  for (size_t p = 0; p < u.parameters.size(); ++p) {
    if (slot.touched[p]) continue;
    device().zero(full + gradient_bytes(u.parameters[p].offset),
                  gradient_bytes(u.parameters[p].elements));
  }
  const int64_t padding = padded_elements(u.elements, ranks_) - u.elements;
  if (padding > 0) device().zero(full + gradient_bytes(u.elements), gradient_bytes(padding));
}

void* ShardStore::full_gradients(int unit) const {
  const Slot& slot = slots_[index(unit)];
  return strategy_.shard.gradients ? slot.transient.data() : slot.gradients.data();
}

void ShardStore::close_full_gradients(int unit) {
  if (strategy_.shard.gradients) slots_[index(unit)].transient.reset();
}

void* ShardStore::reduced_gradient(int unit) const {
  const Slot& slot = slots_[index(unit)];
  if (strategy_.shard.gradients) return slot.gradients.data();
  return bytes_at(slot.gradients.data(), gradient_bytes(shard(unit).begin));
}

void ShardStore::accumulate_shard(int unit, const void* piece, bool first) {
  const int64_t count = shard(unit).size();
  void* sum = slots_[index(unit)].gradients.data();
  if (first) {
    device().copy(sum, piece, gradient_bytes(count));
  } else {
    device().add(strategy_.gradient_dtype, sum, piece, count);
  }
}

StateArray ShardStore::state(int unit, OptimizerState kind) const {
  const Slot& slot = slots_[index(unit)];
  switch (kind) {
    case OptimizerState::kMaster:
      if (slot.master) return {slot.master.data(), DType::kF32};
      if (strategy_.compute_dtype != strategy_.master_dtype) return {};  // frozen
      return {parameter_shard(unit), strategy_.master_dtype};
    case OptimizerState::kExpAvg:
      return {slot.exp_avg.data(), strategy_.moment_dtype};
    case OptimizerState::kExpAvgSq:
      return {slot.exp_avg_sq.data(), strategy_.moment_dtype};
  }
  return {};
}

void ShardStore::set_squared(int unit) { slots_[index(unit)].squared = true; }

void ShardStore::add_gradient_squares(StepMath& math) const {
  for (int u = 0; u < static_cast<int>(slots_.size()); ++u) {
    const Slot& slot = slots_[index(u)];
    if (slot.skipped || slot.squared || unit_of(u).frozen) continue;
    const ShardRange range = shard(u);
    if (range.size() == 0) continue;
    math.add_squares(reduced_gradient(u), strategy_.gradient_dtype, range.begin, range.end);
  }
}

void ShardStore::update(
    int unit, StepMath& math, const OptimizerConfig& config, double lr, int64_t step) {
  const ShardRange range = updated(unit);
  std::vector<UpdateRange> ranges;
  for (const UnitParameter& p : unit_of(unit).parameters) {
    const int64_t from = std::max(range.begin, p.offset),
                  to = std::min(range.end, p.offset + p.elements);
    if (from >= to) continue;
    ranges.push_back(
        {from - range.begin, to - range.begin, p.decay, stream_of(p.name), from - p.offset});
  }
  const StateArray master = state(unit, OptimizerState::kMaster);
  const StateArray exp_avg = state(unit, OptimizerState::kExpAvg);
  UpdateArrays arrays;
  arrays.master = master.data;
  arrays.exp_avg = exp_avg.data;
  arrays.exp_avg_sq = state(unit, OptimizerState::kExpAvgSq).data;
  arrays.gradients =
      strategy_.shard.optimizer ? reduced_gradient(unit) : slots_[index(unit)].gradients.data();
  arrays.gradient_dtype = strategy_.gradient_dtype;
  arrays.parameters = parameter_shard(unit);
  arrays.parameter_dtype = strategy_.compute_dtype;
  arrays.master_dtype = master.dtype;
  arrays.moment_dtype = exp_avg.dtype;
  arrays.seed = seed_;
  math.update(config, lr, step, ranges, arrays);
}

}  // namespace vitrine

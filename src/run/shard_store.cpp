// The shard store.
#include "run/shard_store.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"

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
    const ShardRange range = updated(u);
    const int64_t state = strategy_.shard.optimizer ? piece : full;
    using enum MemoryCategory;
    slot.parameters = Buffer(
        ledger, kParameters, unit.name, compute_bytes(sharded_parameters(u) ? piece : full), true);
    const bool separate_master = strategy_.mixed() && !unit.frozen;
    if (separate_master) {
      slot.master = Buffer(ledger, kOptimizer, unit.name, static_cast<size_t>(state) * 4, true);
    }
    if (!unit.frozen) {
      slot.exp_avg = Buffer(ledger, kOptimizer, unit.name, static_cast<size_t>(state) * 4, true);
      slot.exp_avg_sq = Buffer(ledger, kOptimizer, unit.name, static_cast<size_t>(state) * 4, true);
      slot.gradients = Buffer(ledger,
                              kGradients,
                              unit.name,
                              gradient_bytes(strategy_.shard.gradients ? piece : full),
                              true);
    }
    // Every held element is made from its name and place, so ranks agree without talking.
    const bool all = !sharded_parameters(u);
    const int64_t begin = all ? 0 : range.begin, end = all ? unit.elements : shard(u).end;
    std::vector<float> values;
    for (const UnitParameter& p : unit.parameters) {
      const int64_t from = std::max(begin, p.offset), to = std::min(end, p.offset + p.elements);
      if (from >= to) continue;
      values.resize(static_cast<size_t>(to - from));
      initial_values(p.init, seed, p.name, from - p.offset, to - from, values.data());
      convert(strategy_.compute_dtype,
              bytes_at(slot.parameters.data(), compute_bytes(from - begin)),
              DType::kF32,
              values.data(),
              to - from);
      const int64_t mine_from = std::max(from, range.begin), mine_to = std::min(to, range.end);
      if (separate_master && mine_from < mine_to) {
        std::memcpy(static_cast<float*>(slot.master.data()) + (mine_from - range.begin),
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
    std::memset(
        full + gradient_bytes(u.parameters[p].offset), 0, gradient_bytes(u.parameters[p].elements));
  }
  const int64_t padding = padded_elements(u.elements, ranks_) - u.elements;
  std::memset(full + gradient_bytes(u.elements), 0, gradient_bytes(padding));
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
    std::memcpy(sum, piece, gradient_bytes(count));
    return;
  }
  if (strategy_.gradient_dtype == DType::kF32) {
    auto* to = static_cast<float*>(sum);
    const auto* from = static_cast<const float*>(piece);
    for (int64_t i = 0; i < count; ++i) to[i] += from[i];
    return;
  }
  constexpr int64_t kTile = 512;
  float a[kTile], b[kTile];
  const auto step = static_cast<int64_t>(dtype_bytes(strategy_.gradient_dtype));
  for (int64_t at = 0; at < count; at += kTile) {
    const int64_t n = std::min(kTile, count - at);
    std::byte* to = static_cast<std::byte*>(sum) + at * step;
    convert(DType::kF32, a, strategy_.gradient_dtype, to, n);
    convert(DType::kF32,
            b,
            strategy_.gradient_dtype,
            static_cast<const std::byte*>(piece) + at * step,
            n);
    for (int64_t i = 0; i < n; ++i) a[i] += b[i];
    convert(strategy_.gradient_dtype, to, DType::kF32, a, n);
  }
}

float* ShardStore::state(int unit, OptimizerState kind) const {
  const Slot& slot = slots_[index(unit)];
  switch (kind) {
    case OptimizerState::kMaster:
      return static_cast<float*>(slot.master                              ? slot.master.data()
                                 : strategy_.compute_dtype == DType::kF32 ? parameter_shard(unit)
                                                                          : nullptr);
    case OptimizerState::kExpAvg:
      return static_cast<float*>(slot.exp_avg.data());
    case OptimizerState::kExpAvgSq:
      return static_cast<float*>(slot.exp_avg_sq.data());
  }
  return nullptr;
}

void ShardStore::add_gradient_squares(ExactSum& sum) const {
  for (int u = 0; u < static_cast<int>(slots_.size()); ++u) {
    if (slots_[index(u)].skipped || unit_of(u).frozen) continue;
    const ShardRange range = shard(u);
    if (range.size() == 0) continue;
    add_squares(reduced_gradient(u), strategy_.gradient_dtype, range.begin, range.end, sum);
  }
}

void ShardStore::update(
    int unit, const OptimizerConfig& config, double lr, int64_t step, double gradient_scale) {
  const ShardRange range = updated(unit);
  float* master = state(unit, OptimizerState::kMaster);
  float* exp_avg = state(unit, OptimizerState::kExpAvg);
  float* exp_avg_sq = state(unit, OptimizerState::kExpAvgSq);
  auto* gradients = static_cast<std::byte*>(
      strategy_.shard.optimizer ? reduced_gradient(unit) : slots_[index(unit)].gradients.data());
  auto* parameters = static_cast<std::byte*>(parameter_shard(unit));
  for (const UnitParameter& p : unit_of(unit).parameters) {
    const int64_t from = std::max(range.begin, p.offset),
                  to = std::min(range.end, p.offset + p.elements);
    if (from >= to) continue;
    const int64_t at = from - range.begin;
    adamw_update(adamw_step(config, lr, step, gradient_scale, p.decay),
                 master + at,
                 exp_avg + at,
                 exp_avg_sq + at,
                 gradients + gradient_bytes(at),
                 strategy_.gradient_dtype,
                 parameters + compute_bytes(at),
                 strategy_.compute_dtype,
                 to - from);
  }
}

}  // namespace vitrine

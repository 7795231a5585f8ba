// Saving and loading of an engine's state, addressed by parameter name and element range.
#include <algorithm>
#include <deque>
#include <vector>

#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/checkpoint_writer.h"
#include "core/device.h"
#include "core/error.h"
#include "core/json.h"
#include "run/engine.h"

namespace vitrine {
namespace {

// Every rank's text on every rank.
std::vector<std::string> gather_texts(LaneCommunicators& comms, const std::string& mine) {
  if (comms.alone()) return {mine};
  Communicator& comm = comms.control();
  comm.set_context(-1, "checkpoint");
  const auto size = static_cast<int64_t>(mine.size());
  std::vector<int64_t> sizes(static_cast<size_t>(comm.size()));
  comm.all_gather(std::as_bytes(std::span(&size, 1)), std::as_writable_bytes(std::span(sizes)));
  int64_t total = 0;
  for (const int64_t bytes : sizes) total += bytes;
  std::string all(static_cast<size_t>(total), '\0');
  comm.all_gather_v(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)), sizes);
  std::vector<std::string> texts;
  size_t at = 0;
  for (const int64_t bytes : sizes) {
    texts.push_back(all.substr(at, static_cast<size_t>(bytes)));
    at += static_cast<size_t>(bytes);
  }
  return texts;
}

struct Array {
  StateKind kind;
  OptimizerState state;
};
constexpr Array kArrays[] = {{StateKind::kMaster, OptimizerState::kMaster},
                             {StateKind::kExpAvg, OptimizerState::kExpAvg},
                             {StateKind::kExpAvgSq, OptimizerState::kExpAvgSq}};

}  // namespace

void Engine::save(const std::string& folder, const std::string& extra_json, int keep_last) {
  if (phase_ != Phase::kReady || micro_ != 0) {
    throw ConfigError("save was called in the middle of a step: call step() first");
  }
  // A rank that fails must not leave the others waiting: errors travel with the results.
  std::string text, failure;
  Device& device = ledger_.device();
  std::deque<std::vector<std::byte>> staged;  // the writer reads them when it finishes
  const auto on_host = [&](const void* data, int64_t bytes) -> const void* {
    if (device.is_host()) return data;
    staged.emplace_back(static_cast<size_t>(bytes));
    device.download(staged.back().data(), data, staged.back().size());
    return staged.back().data();
  };
  std::unique_ptr<CheckpointWriter> writer;
  try {
    writer = std::make_unique<CheckpointWriter>(
        folder, steps_done_, place_.rank, options_.strategy.mesh.world());
    const ParameterTable& table = store_->table();
    for (int u = 0; u < static_cast<int>(table.units.size()); ++u) {
      if (!store_->local(u)) continue;
      const Unit& unit = table.units[static_cast<size_t>(u)];
      const ShardRange mine = store_->shard(u), held = store_->updated(u);
      for (const UnitParameter& p : unit.parameters) {
        const int64_t from = std::max(mine.begin, p.offset),
                      to = std::min(mine.end, p.offset + p.elements);
        if (from >= to) continue;
        const std::vector<int64_t> shape = p.shape.dims();
        if (unit.frozen) {
          const auto element = static_cast<int64_t>(dtype_bytes(options_.strategy.compute_dtype));
          const auto* data = static_cast<const std::byte*>(store_->parameter_shard(u)) +
                             (from - held.begin) * element;
          writer->add(p.name,
                      StateKind::kParameter,
                      shape,
                      options_.strategy.compute_dtype,
                      from - p.offset,
                      to - p.offset,
                      on_host(data, (to - from) * element));
          continue;
        }
        for (const Array& array : kArrays) {
          const StateArray state = store_->state(u, array.state);
          writer->add(
              p.name,
              array.kind,
              shape,
              state.dtype,
              from - p.offset,
              to - p.offset,
              on_host(state.at(from - held.begin), static_cast<int64_t>(state.bytes(to - from))));
        }
      }
    }
    text = writer->finish_rank().to_text();
  } catch (const std::exception& error) {  // no memory for staging, too
    failure = error.what();
  }
  const std::vector<std::string> texts =
      gather_texts(*comms_, failure.empty() ? text : "!" + failure);
  for (const std::string& other : texts) {
    if (!other.empty() && other[0] == '!') throw IoError(other.substr(1));
  }
  if (place_.rank == 0) {
    try {
      std::vector<RankResult> results;
      for (const std::string& other : texts) results.push_back(RankResult::from_text(other));
      const Json extra{
          {"engine",
           {{"steps_done", steps_done_},
            {"updates", updates_},
            {"skipped_steps", skipped_},
            {"seed", options_.seed},
            {"global_batch", options_.strategy.global_batch()},
            {"loss_scale",
             {{"scale", options_.scaler.scale},
              {"good_steps", options_.scaler.good_steps},
              {"hysteresis_left", options_.scaler.hysteresis_left},
              {"skipped_steps", options_.scaler.skipped_steps}}}}},
          {"run",
           extra_json.empty() ? Json::object() : parse_json(extra_json, "checkpoint extra")}};
      writer->commit(results, extra, keep_last);
    } catch (const Error& error) {
      failure = error.what();
    }
  }
  for (const std::string& other : gather_texts(*comms_, failure)) {
    if (!other.empty()) throw IoError(other);
  }
}

std::string Engine::load(const std::string& path, bool optimizer_state) {
  if (phase_ != Phase::kReady || micro_ != 0) {
    throw ConfigError("load was called in the middle of a step: call step() first");
  }
  const CheckpointReader reader = CheckpointReader::open(path);
  const Json engine = reader.extra().value("engine", Json::object());
  if (optimizer_state) {  // before anything is overwritten
    const int64_t batch = engine.value("global_batch", options_.strategy.global_batch());
    if (batch != options_.strategy.global_batch()) {
      throw ConfigError("checkpoint " + reader.path() + " was trained with a global batch of " +
                        std::to_string(batch) + ", this run has " +
                        std::to_string(options_.strategy.global_batch()) +
                        ": the data position follows from the step, so samples would repeat or be "
                        "skipped; set train_batch_size to " +
                        std::to_string(batch));
    }
  }
  forget_next_batches(nullptr);
  const ParameterTable& table = store_->table();
  Device& device = ledger_.device();
  device.synchronize();  // of the last step, updated pieces may still be on their way
  std::vector<std::byte> staged;
  // `fill` writes `bytes` of host memory, which end up at `to`.
  const auto deliver = [&](void* to, int64_t bytes, const auto& fill) {
    if (device.is_host()) return fill(to);
    staged.resize(static_cast<size_t>(bytes));
    fill(staged.data());
    device.upload(to, staged.data(), staged.size());
  };
  for (int u = 0; u < static_cast<int>(table.units.size()); ++u) {
    if (!store_->local(u)) continue;
    const Unit& unit = table.units[static_cast<size_t>(u)];
    const ShardRange held = store_->updated(u);
    for (const UnitParameter& p : unit.parameters) {
      const StateKind wanted = unit.frozen ? StateKind::kParameter : StateKind::kMaster;
      const StateKind kind = reader.has(p.name, wanted)               ? wanted
                             : reader.has(p.name, StateKind::kMaster) ? StateKind::kMaster
                                                                      : StateKind::kParameter;
      const StateInfo& info = reader.info(p.name, kind);
      if (info.shape != p.shape.dims()) {
        throw ConfigError("checkpoint " + reader.path() + ": " + p.name + " has shape " +
                          Shape(info.shape).str() + ", the model wants " + p.shape.str());
      }
      // A parameter that this rank holds in full is read in full.
      const bool full = store_->resident(u);
      const int64_t begin = full ? p.offset : std::max(held.begin, p.offset);
      const int64_t end = full ? p.offset + p.elements : std::min(held.end, p.offset + p.elements);
      const size_t element = dtype_bytes(options_.strategy.compute_dtype);
      if (begin < end) {
        auto* base =
            static_cast<std::byte*>(full ? store_->full_parameters(u) : store_->parameter_shard(u));
        const int64_t origin = full ? 0 : held.begin;
        deliver(base + static_cast<size_t>(begin - origin) * element,
                (end - begin) * static_cast<int64_t>(element),
                [&](void* to) {
                  reader.read(p.name,
                              kind,
                              begin - p.offset,
                              end - p.offset,
                              options_.strategy.compute_dtype,
                              to);
                });
      }
      if (unit.frozen) continue;
      const int64_t from = std::max(held.begin, p.offset),
                    to = std::min(held.end, p.offset + p.elements);
      if (from >= to) continue;
      for (const Array& array : kArrays) {
        const StateArray state = store_->state(u, array.state);
        void* data = state.at(from - held.begin);
        const size_t bytes = state.bytes(to - from);
        const StateKind source = array.kind == StateKind::kMaster ? kind : array.kind;
        if (array.kind != StateKind::kMaster && !optimizer_state) {
          device.zero(data, bytes);
          continue;
        }
        if (!reader.has(p.name, source)) {
          throw ConfigError(
              "checkpoint " + reader.path() + " has no optimizer state (" +
              state_kind_name(source) + ") for " + p.name +
              ": training would go on with moments of zero; load without the optimizer "
              "state if that is meant");
        }
        deliver(data, static_cast<int64_t>(bytes), [&](void* host) {
          reader.read(p.name, source, from - p.offset, to - p.offset, state.dtype, host);
        });
      }
    }
  }
  device.synchronize();  // the first gathers of a step wait for nothing
  if (optimizer_state) {
    steps_done_ = engine.value("steps_done", reader.step());
    updates_ = engine.value("updates", steps_done_);
    skipped_ = engine.value("skipped_steps", int64_t{0});
    const Json scale = engine.value("loss_scale", Json::object());
    options_.scaler.scale = scale.value("scale", options_.scaler.scale);
    options_.scaler.good_steps = scale.value("good_steps", int64_t{0});
    options_.scaler.hysteresis_left =
        scale.value("hysteresis_left", options_.scaler.hysteresis_left);
    options_.scaler.skipped_steps = scale.value("skipped_steps", int64_t{0});
  }
  return reader.extra().value("run", Json::object()).dump();
}

}  // namespace vitrine

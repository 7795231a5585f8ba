// Trains a model for some steps with ranks as threads of this process, and gives every rank's
// losses.
#pragma once

#include <functional>
#include <thread>
#include <vector>

#include "core/philox.h"
#include "run/runner.h"

namespace vitrine::testing {

struct HarnessResult {
  std::vector<double> losses, norms;
  std::vector<MemoryByCategory> memory_after;  // a rank, between steps
  std::vector<int64_t> sent_scheduled;         // a rank
  std::vector<float> parameters;  // rank 0's own shard of every unit, for bitwise comparison
};

// One micro-batch's owned tensors.
struct OwnedBatch {
  std::vector<std::pair<std::string, std::vector<std::byte>>> data;
  BatchViews views;
};

// Token batches as a pure function of the global sample index.
inline OwnedBatch token_batch(
    int64_t vocab, int64_t length, int64_t first_sample, int64_t count, int64_t stride) {
  OwnedBatch batch;
  for (const char* name : {"tokens", "targets"}) {
    batch.data.emplace_back(name, std::vector<std::byte>(static_cast<size_t>(count * length) * 4));
  }
  auto* tokens = reinterpret_cast<int32_t*>(batch.data[0].second.data());
  auto* targets = reinterpret_cast<int32_t*>(batch.data[1].second.data());
  for (int64_t b = 0; b < count; ++b) {
    const Philox random(7, static_cast<uint64_t>(first_sample + b * stride));
    // A repeated short motif: something that a model can learn.
    for (int64_t t = 0; t < length; ++t) {
      const auto at = static_cast<uint64_t>(t % 5), next = static_cast<uint64_t>((t + 1) % 5);
      tokens[b * length + t] = static_cast<int32_t>(random.below(static_cast<uint64_t>(vocab), at));
      targets[b * length + t] =
          static_cast<int32_t>(random.below(static_cast<uint64_t>(vocab), next));
    }
  }
  for (auto& [name, bytes] : batch.data) {
    batch.views.emplace_back(name, TensorView{bytes.data(), {count, length}, DType::kI32});
  }
  return batch;
}

// What a test puts in the place of the CPU's execution, and does with a runner before its steps.
struct HarnessHooks {
  std::function<Execution(int rank)> execution = [](int) { return cpu_execution(); };
  std::function<Recorder*(int rank)> recorder = [](int) { return nullptr; };
  std::function<void(int rank, Runner&)> prepare = [](int, Runner&) {};
  std::function<void(int rank, const Schedule&)> step_done = [](int, const Schedule&) {};
};

using BatchMaker = std::function<OwnedBatch(int64_t step, int micro, int data_index)>;

inline HarnessResult train(const std::function<Model()>& make_model,
                           const BatchTypes& types,
                           const BatchMaker& batches,
                           const Strategy& strategy,
                           int steps,
                           const OptimizerConfig& optimizer,
                           uint64_t seed = 1,
                           const HarnessHooks& hooks = {}) {
  const int world = strategy.mesh.world();
  auto worlds = make_local_worlds(world, std::chrono::seconds(60));
  HarnessResult result;
  result.memory_after.resize(static_cast<size_t>(world));
  result.sent_scheduled.resize(static_cast<size_t>(world));
  std::vector<std::exception_ptr> errors(static_cast<size_t>(world));
  const auto run = [&](int rank) {
    const auto r = static_cast<size_t>(rank);
    try {
      const Model model = make_model();
      const ParameterTable table = make_parameter_table(model, strategy);
      const Graph graph = compile_graph(model, table, types, strategy);
      const Schedule schedule = build_schedule(graph, strategy, rank);
      const MeshPlace place = place_in_mesh(strategy.mesh, rank);
      MemoryLedger ledger;
      ShardStore store(table, strategy, place, schedule.blocks, seed, ledger);
      LaneCommunicators comms(worlds[r].get(), strategy, place, ledger);
      const Execution execution = hooks.execution(rank);
      Runner runner(
          graph, strategy, schedule, store, comms, execution, ledger, hooks.recorder(rank), true);
      hooks.prepare(rank, runner);
      for (int step = 0; step < steps; ++step) {
        OwnedBatch batch;
        StepInput input;
        input.step = step;
        input.update = step + 1;
        input.lr = optimizer.lr;
        input.optimizer = optimizer;
        input.batch = [&](int micro) {
          batch = batches(step, micro, place.data_index);
          return batch.views;
        };
        const StepOutput out = runner.step(input);
        hooks.step_done(rank, schedule);
        if (rank == 0) {
          result.losses.push_back(out.loss);
          result.norms.push_back(out.gradient_norm);
        }
      }
      result.memory_after[r] = ledger.by_category();
      result.sent_scheduled[r] = schedule.traffic().total();
      if (rank == 0) {
        for (int u = 0; u < static_cast<int>(table.units.size()); ++u) {
          if (!store.local(u) || strategy.compute_dtype != DType::kF32) continue;
          const ShardRange mine = store.shard(u), held = store.updated(u);
          const float* p =
              store.state(u, OptimizerState::kMaster).as<float>() + (mine.begin - held.begin);
          result.parameters.insert(result.parameters.end(), p, p + mine.size());
        }
      }
    } catch (...) {
      errors[r] = std::current_exception();
      worlds[r]->abort("a rank failed");
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 1; rank < world; ++rank) threads.emplace_back(run, rank);
  run(0);
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  return result;
}

}  // namespace vitrine::testing

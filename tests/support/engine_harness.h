// Engines on ranks that are threads of this process, over the toy decoder.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "run/engine.h"
#include "support/toy_models.h"
#include "support/train_harness.h"

namespace vitrine::testing {

// Runs `body` on every rank. The first error of a rank aborts the others and is thrown here.
inline void on_ranks(int ranks, const std::function<void(int rank, World* world)>& body) {
  auto worlds = make_local_worlds(ranks, std::chrono::seconds(60));
  std::exception_ptr first;
  std::mutex mutex;
  const auto run = [&](int rank) {
    World* world = worlds[static_cast<size_t>(rank)].get();
    try {
      body(rank, ranks > 1 ? world : nullptr);
    } catch (...) {
      {
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
      }
      world->abort("a rank failed");
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 1; rank < ranks; ++rank) threads.emplace_back(run, rank);
  run(0);
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

constexpr int64_t kToyVocab = 53, kToyLength = 11;

inline BatchTypes toy_batch(int64_t micro_batch) {
  return {{"tokens", {{micro_batch, kToyLength}, DType::kI32}},
          {"targets", {{micro_batch, kToyLength}, DType::kI32}}};
}

// fp32, nothing persistent, micro-batches of two.
inline Strategy toy_strategy(int ranks, int stage, int64_t accumulation = 1) {
  Strategy strategy;
  strategy.mesh.data = ranks;
  strategy.shard = Sharding::stage(stage);
  strategy.micro_batch = 2;
  strategy.accumulation = accumulation;
  strategy.persistence_threshold = 0;
  return strategy;
}

// The global batch of `step`, cut as a loader does.
inline OwnedBatch toy_samples(const Strategy& strategy, int64_t step, int micro, int data_index) {
  const int64_t place = (step * strategy.accumulation + micro) * strategy.mesh.data + data_index;
  return token_batch(kToyVocab, kToyLength, place * strategy.micro_batch, strategy.micro_batch, 1);
}

inline StepReport toy_step(Engine& engine) {
  OwnedBatch batch;
  return engine.train_step([&](int micro) -> BatchViews {
    batch = toy_samples(engine.strategy(),
                        engine.steps_done(),
                        micro,
                        place_in_mesh(engine.strategy().mesh, engine.rank()).data_index);
    return batch.views;
  });
}

// fp32 values of every trainable parameter, put together from the shards that ranks own.
class GatheredState {
 public:
  void add(Engine& engine) {
    const std::lock_guard lock(mutex_);
    ShardStore& store = engine.store();
    for (int u = 0; u < static_cast<int>(store.table().units.size()); ++u) {
      const Unit& unit = store.table().units[static_cast<size_t>(u)];
      if (!store.local(u) || unit.frozen) continue;
      const ShardRange mine = store.shard(u), held = store.updated(u);
      std::vector<float>& values = units_[unit.name];
      values.resize(static_cast<size_t>(unit.elements));
      const StateArray master = store.state(u, OptimizerState::kMaster);
      convert(DType::kF32,
              values.data() + mine.begin,
              master.dtype,
              master.at(mine.begin - held.begin),
              mine.size());
    }
  }
  const std::map<std::string, std::vector<float>>& units() const { return units_; }

 private:
  std::mutex mutex_;
  std::map<std::string, std::vector<float>> units_;
};

}  // namespace vitrine::testing

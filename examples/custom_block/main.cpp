// Trains a model with a block of one's own under ZeRO-3, with the loop of a DeepSpeed user.
// Ranks are threads here; make_gloo_world(rank_environment(), timeout) makes them processes of a
// launcher.
#include <cstdio>
#include <exception>
#include <thread>

#include "core/parallel.h"
#include "core/philox.h"
#include "model.h"
#include "run/engine.h"

namespace {

constexpr int kRanks = 4, kSteps = 150;
constexpr int64_t kMicroBatch = 4, kLength = 16, kVocabulary = 13, kWidth = 32;

// Sequences with x_(t+1) = x_t + x_(t-1) mod 13: two positions decide the next one, one alone says
// nothing.
struct FibonacciBatch {
  std::vector<int32_t> tokens, targets;
  explicit FibonacciBatch(int64_t first_sample) {
    for (int64_t sample = first_sample; sample < first_sample + kMicroBatch; ++sample) {
      const vitrine::Philox random(/*seed=*/1, static_cast<uint64_t>(sample));
      auto before = static_cast<int32_t>(random.below(kVocabulary, 0));
      auto now = static_cast<int32_t>(random.below(kVocabulary, 1));
      for (int64_t t = 0; t < kLength; ++t) {
        const int32_t next = (before + now) % static_cast<int32_t>(kVocabulary);
        tokens.push_back(now);
        targets.push_back(t == 0 ? -1
                                 : next);  // a negative target does not count: x_(-1) is not seen
        before = now;
        now = next;
      }
    }
  }
  vitrine::BatchViews views() {
    const vitrine::Shape shape = {kMicroBatch, kLength, 1};
    return {{"tokens", {tokens.data(), shape, vitrine::DType::kI32}},
            {"targets", {targets.data(), shape, vitrine::DType::kI32}}};
  }
};

void train(vitrine::World& world) {
  const vitrine::TensorType ids{{kMicroBatch, kLength, 1}, vitrine::DType::kI32};
  vitrine::EngineOptions options;
  options.strategy.mesh.data = world.size();
  options.strategy.shard = vitrine::Sharding::stage(3);
  options.strategy.micro_batch = kMicroBatch;
  options.strategy.persistence_threshold = 0;  // shard even the smallest parameters
  options.optimizer.lr = 5e-3;
  options.schedule.total_steps = kSteps;
  auto engine = vitrine::initialize(make_model(kVocabulary, kWidth, /*layers=*/2),
                                    {{"tokens", ids}, {"targets", ids}},
                                    options,
                                    &world);
  for (int64_t step = 0; step < kSteps; ++step) {
    FibonacciBatch batch((step * world.size() + world.rank()) * kMicroBatch);
    const double loss = engine->forward(batch.views());
    engine->backward(loss);
    const vitrine::StepReport report = engine->step();
    if (world.rank() == 0 && (step % 25 == 0 || step == kSteps - 1)) {
      std::printf("step %3lld  loss %.4f\n", static_cast<long long>(step), report.output.loss);
    }
  }
  if (world.rank() == 0) std::printf("%s", engine->ledger().table().c_str());
}

}  // namespace

int main() {
  vitrine::set_compute_threads(1);  // of each rank
  auto worlds = vitrine::make_local_worlds(kRanks);
  std::vector<std::exception_ptr> errors(kRanks);
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < worlds.size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        train(*worlds[rank]);
      } catch (...) {
        errors[rank] = std::current_exception();
        worlds[rank]->abort("a rank failed");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (!error) continue;
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& e) {
      std::fprintf(stderr, "%s\n", e.what());
      return 1;
    }
  }
  return 0;
}

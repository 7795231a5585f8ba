// What memory arithmetic says of model state is what the ledger holds after real steps, to the
// byte.
#include "schedule/memory.h"

#include <gtest/gtest.h>

#include "support/engine_harness.h"

namespace vitrine::testing {
namespace {

struct Precision {
  DType compute, gradients;
  DType masters = DType::kF32, moments = DType::kF32;
};
constexpr Precision kPrecisions[] = {{DType::kF32, DType::kF32},
                                     {DType::kBF16, DType::kF32},
                                     {DType::kBF16, DType::kBF16},
                                     {DType::kBF16, DType::kF32, DType::kBF16},
                                     {DType::kBF16, DType::kBF16, DType::kBF16, DType::kBF16},
                                     {DType::kF16, DType::kF16}};

void expect_ledger_as_computed(const Strategy& strategy) {
  on_ranks(strategy.mesh.world(), [&](int rank, World* world) {
    EngineOptions options;
    options.strategy = strategy;
    options.scaler.scale = 128;
    const auto engine = initialize(
        toy_decoder(2, true, kToyVocab), toy_batch(strategy.micro_batch), options, world);
    for (int step = 0; step < 2; ++step) EXPECT_FALSE(toy_step(*engine).skipped);
    const MemoryByCategory held = engine->ledger().by_category();
    const MemoryByCategory computed =
        model_state_bytes(engine->store().table(), strategy, engine->schedule().blocks);
    for (const auto category :
         {MemoryCategory::kParameters, MemoryCategory::kGradients, MemoryCategory::kOptimizer}) {
      const auto c = static_cast<size_t>(category);
      EXPECT_GT(computed[c], 0);
      EXPECT_EQ(held[c], computed[c])
          << memory_category_name(category) << ", stage " << strategy.shard.stage() << ", rank "
          << rank << " of " << strategy.mesh.world() << ", " << dtype_name(strategy.compute_dtype);
    }
    // Nothing of a step outlives it.
    for (const auto category : {MemoryCategory::kGathered, MemoryCategory::kCommunication}) {
      EXPECT_EQ(held[static_cast<size_t>(category)], 0) << memory_category_name(category);
    }
    // Without padding it is ZeRO's arithmetic.
    if (strategy.mesh.pipeline == 1) {
      int64_t all = 0;
      for (const int64_t bytes : computed) all += bytes;
      EXPECT_EQ(all - padding_bytes(engine->store().table(), strategy, engine->schedule().blocks),
                zero_arithmetic_bytes(engine->store().table(), strategy));
    }
  });
}

TEST(Memory, LedgerEqualsArithmeticAtEveryStageWorldSizeAndPrecision) {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    for (int stage = 0; stage <= 3; ++stage) {
      for (const Precision& precision : kPrecisions) {
        Strategy strategy = toy_strategy(ranks, stage);
        strategy.compute_dtype = precision.compute;
        strategy.gradient_dtype = precision.gradients;
        strategy.master_dtype = precision.masters;
        strategy.moment_dtype = precision.moments;
        expect_ledger_as_computed(strategy);
      }
    }
  }
}

TEST(Memory, LedgerEqualsArithmeticWithFrozenAndPersistentUnits) {
  for (const int ranks : {1, 3}) {
    for (int stage = 0; stage <= 3; ++stage) {
      Strategy strategy = toy_strategy(ranks, stage, 2);
      strategy.compute_dtype = DType::kBF16;
      strategy.frozen = {"body.0.w*", "body.1.norm"};
      strategy.persistence_threshold = 100;
      strategy.persistent = {"embed.*", "body.1.w_up"};
      expect_ledger_as_computed(strategy);
      strategy.master_dtype = strategy.moment_dtype = DType::kBF16;
      expect_ledger_as_computed(strategy);
    }
  }
}

// The published table of the ZeRO paper (Rajbhandari et al., 2020, figure 1): 2 + 2 + 12 bytes a
// parameter.
TEST(Memory, IsThatOfTheZeROPaperForBf16) {
  Model model = toy_decoder(2, false, kToyVocab);
  for (const int ranks : {2, 4}) {
    Strategy strategy = toy_strategy(ranks, 0);
    strategy.compute_dtype = strategy.gradient_dtype = DType::kBF16;
    const auto bytes = [&](int stage) {
      strategy.shard = Sharding::stage(stage);
      return zero_arithmetic_bytes(make_parameter_table(model, strategy), strategy);
    };
    const int64_t p = make_parameter_table(model, strategy).total_elements;
    const auto share = [&](int64_t cut) { return (cut * p + ranks - 1) / ranks; };
    EXPECT_EQ(bytes(0), 16 * p);
    EXPECT_EQ(bytes(1), 4 * p + share(12));
    EXPECT_EQ(bytes(2), 2 * p + share(14));
    EXPECT_EQ(bytes(3), share(16));
    // Masters and moments in bf16: 2 + 2 + 4.
    strategy.master_dtype = strategy.moment_dtype = DType::kBF16;
    EXPECT_EQ(bytes(0), 8 * p);
    EXPECT_EQ(bytes(2), 2 * p + share(6));
    EXPECT_EQ(bytes(3), share(8));
  }
}

}  // namespace
}  // namespace vitrine::testing

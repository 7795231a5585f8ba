// What is offered after a card ran out of memory.
#include "plan/what_fits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "core/json.h"
#include "plan/engine_plan.h"

namespace vitrine::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr int64_t kGiB = int64_t{1} << 30;

RunConfig run(int ranks, int hidden, int layers, int sequence, int micro, int stage = 0) {
  const Json file{{"model",
                   {{"family", "decoder"},
                    {"size", "tiny"},
                    {"hidden", hidden},
                    {"heads", 8},
                    {"vocab", 1024},
                    {"layers", layers},
                    {"max_positions", sequence},
                    {"sequence_length", sequence}}},
                  {"data", {{"kind", "random"}}},
                  {"train", {{"steps", 3}}},
                  {"train_micro_batch_size_per_gpu", micro},
                  {"zero_optimization", {{"stage", stage}}}};
  ConfigOptions options;
  options.world = ranks;
  return make_run_config(file, options);
}

int64_t peak(const RunConfig& config, int ranks) {
  const EnginePlan plan = plan_engine(config, ranks, nullptr);
  return plan.by_rank[static_cast<size_t>(plan.fullest_rank())].most_bytes;
}

// The run that a user gets who follows the advice.
RunConfig follow(RunConfig config, const std::string& change) {
  long long micro = 0, accumulation = 0;
  if (std::sscanf(change.c_str(),
                  "train_micro_batch_size_per_gpu %lld with gradient_accumulation_steps %lld",
                  &micro,
                  &accumulation) == 2) {
    config.strategy.micro_batch = micro;
    config.strategy.accumulation = accumulation;
  }
  if (change.find("activation_checkpointing") != std::string::npos) {
    config.strategy.recompute = true;
  }
  const std::string key = "zero_optimization.stage ";
  if (const size_t at = change.find(key); at != std::string::npos) {
    config.strategy.shard = Sharding::stage(change[at + key.size()] - '0');
  }
  return config;
}

// Every change fits, is as large as it says, and trains on the same batch.
void expect_all_fit(const RunConfig& config, int ranks, int64_t capacity) {
  int64_t asked = 0;
  const std::vector<Fitting> fits = what_fits(config, ranks, capacity, &asked);
  EXPECT_EQ(asked, peak(config, ranks));
  EXPECT_GT(asked, capacity);
  ASSERT_THAT(fits, Not(IsEmpty()));
  for (const Fitting& fit : fits) {
    SCOPED_TRACE(fit.change);
    EXPECT_LE(fit.peak_bytes, capacity);
    const RunConfig followed = follow(config, fit.change);
    EXPECT_EQ(followed.strategy.global_batch(), config.strategy.global_batch());
    EXPECT_EQ(peak(followed, ranks), fit.peak_bytes);
  }
}

TEST(WhatFits, ASmallerMicroBatchWithTheSameGlobalBatch) {
  const RunConfig config = run(1, 256, 4, 256, 64);
  expect_all_fit(config, 1, kGiB);
  const std::vector<Fitting> fits = what_fits(config, 1, kGiB);
  EXPECT_THAT(fits.front().change, HasSubstr("train_micro_batch_size_per_gpu"));
  EXPECT_THAT(fits.front().change, Not(HasSubstr("activation_checkpointing")));
}

TEST(WhatFits, OddMicroBatchesAreDividedToo) {
  const RunConfig config = run(1, 256, 4, 256, 75);
  expect_all_fit(config, 1, kGiB);
  EXPECT_EQ(what_fits(config, 1, kGiB).front().change,
            "train_micro_batch_size_per_gpu 25 with gradient_accumulation_steps 3");
}

TEST(WhatFits, RecomputationWhereOneSampleIsTooLarge) {
  const RunConfig config = run(1, 256, 8, 2048, 1);
  RunConfig recomputed = config;
  recomputed.strategy.recompute = true;
  const int64_t capacity = (peak(config, 1) + peak(recomputed, 1)) / 2;
  expect_all_fit(config, 1, capacity);
  const std::vector<Fitting> fits = what_fits(config, 1, capacity);
  ASSERT_EQ(fits.size(), 1U);
  EXPECT_THAT(fits.front().change, HasSubstr("activation_checkpointing"));
}

TEST(WhatFits, HigherZeroStagesWhereStatesAreTooLarge) {
  const RunConfig config = run(4, 512, 8, 32, 1);
  const int64_t capacity = peak(follow(config, "zero_optimization.stage 2"), 4);
  expect_all_fit(config, 4, capacity);
  for (const Fitting& fit : what_fits(config, 4, capacity)) {
    EXPECT_THAT(fit.change, HasSubstr("zero_optimization.stage"));
  }
}

TEST(WhatFits, NothingWhereNothingDoes) {
  const RunConfig config = run(2, 256, 4, 64, 4);
  EXPECT_THAT(what_fits(config, 2, int64_t{1} << 20), IsEmpty());
  EXPECT_THAT(what_fits_text(config, 2, int64_t{1} << 20), HasSubstr("more ranks"));
}

TEST(WhatFits, SaysWhatIsHeldWhatThereIsAndWhatWouldFit) {
  const std::string text = what_fits_text(run(1, 256, 4, 256, 64), 1, kGiB);
  EXPECT_THAT(text, HasSubstr("the device has 1.00 GiB"));
  EXPECT_THAT(text, HasSubstr("what would fit:\n  train_micro_batch_size_per_gpu"));
}

}  // namespace
}  // namespace vitrine::testing

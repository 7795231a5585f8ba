// A decoder that has learned a pattern writes it; the draw is what the logits say.
#include "train/sample.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "core/json.h"
#include "core/philox.h"
#include "data/tokens.h"
#include "support/temporary_folder.h"
#include "train/trainer.h"

namespace vitrine {
namespace {

constexpr char kPattern[] = "one two, ";

Json run_file(const std::string& data, int64_t steps) {
  return {{"model",
           {{"family", "decoder"},
            {"vocab", kByteVocabulary},
            {"hidden", 32},
            {"layers", 1},
            {"heads", 2},
            {"kv_heads", 2},
            {"head_dim", 16},
            {"ffn", 64},
            {"max_positions", 32},
            {"sequence_length", 32}}},
          {"data", {{"kind", "tokens"}, {"path", data}, {"workers", 0}}},
          {"train", {{"steps", steps}, {"seed", 1}}},
          {"train_micro_batch_size_per_gpu", 4},
          {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 0.01}}}}}};
}

// One run for all tests of this file: training is the slow part.
class Sampling : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder;
    std::string text;
    for (int i = 0; i < 400; ++i) text += kPattern;
    std::filesystem::create_directories(*folder_ / "data");
    write_token_shard(*folder_ / "data/train-000.bin", tokenize_bytes(text), kByteVocabulary);
    TrainOptions options;
    options.run_folder = *folder_ / "run";
    const TrainResult result = train(make_run_config(run_file(*folder_ / "data", 150)), options);
    ASSERT_LT(result.loss, 0.3);
    run_ = new TrainedRun(open_trained_run(*folder_ / "run"));
  }
  static void TearDownTestSuite() {
    delete run_;
    delete folder_;
  }
  static TemporaryFolder* folder_;
  static TrainedRun* run_;
};
TemporaryFolder* Sampling::folder_ = nullptr;
TrainedRun* Sampling::run_ = nullptr;

TEST_F(Sampling, GreedyTextRepeatsWhatWasLearnedBeyondTheContext) {
  TokenSampler sampler(*run_->engine);
  EXPECT_EQ(sampler.context(), 32);
  SampleOptions greedy;
  greedy.temperature = 0;
  std::vector<int32_t> told;
  const auto made =
      sampler.sample(tokenize_bytes("one two, one"), 45, kEndOfText, greedy, [&](int32_t id) {
        told.push_back(id);
      });
  EXPECT_EQ(text_of_tokens(made), " two, one two, one two, one two, one two, one");
  EXPECT_EQ(told, made);
}

TEST_F(Sampling, TheSameSeedGivesTheSameText) {
  TokenSampler sampler(*run_->engine);
  SampleOptions hot;
  hot.temperature = 3;
  hot.allowed = kByteVocabulary;
  hot.seed = 5;
  const auto prompt = tokenize_bytes("one");
  const auto first = sampler.sample(prompt, 20, -1, hot);
  EXPECT_EQ(first, sampler.sample(prompt, 20, -1, hot));
  hot.seed = 6;
  EXPECT_NE(first, sampler.sample(prompt, 20, -1, hot));
}

// The loss is computed by another operation, over all positions at once.
TEST_F(Sampling, LogitsAgreeWithTheLoss) {
  TokenSampler sampler(*run_->engine);
  const Philox random(3, 4);
  std::vector<int32_t> tokens(32), targets(32);
  for (size_t t = 0; t < 32; ++t) {
    tokens[t] = static_cast<int32_t>(random.below(kByteVocabulary, t));
    if (t > 0) targets[t - 1] = tokens[t];
  }
  double sum = 0;
  for (size_t t = 0; t < 32; ++t) {
    const auto logits =
        sampler.logits({tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(t) + 1});
    double total = 0;
    for (const float value : logits) total += std::exp(static_cast<double>(value));
    sum += std::log(total) - static_cast<double>(logits[static_cast<size_t>(targets[t])]);
  }
  const Shape shape{1, 32};
  const EvalReport report =
      run_->engine->evaluate({{"tokens", {tokens.data(), shape, DType::kI32}},
                              {"targets", {targets.data(), shape, DType::kI32}}});
  EXPECT_NEAR(sum / 32, report.loss, 1e-4 * report.loss);
}

TEST_F(Sampling, StopsAtTheStopToken) {
  TokenSampler sampler(*run_->engine);
  SampleOptions greedy;
  greedy.temperature = 0;
  const auto made = sampler.sample(tokenize_bytes("one two, one"), 45, ',', greedy);
  EXPECT_EQ(text_of_tokens(made), " two");
}

TEST_F(Sampling, RefusesAnEmptyPromptAndUnknownIds) {
  TokenSampler sampler(*run_->engine);
  EXPECT_THROW(sampler.logits({}), ConfigError);
  EXPECT_THROW(sampler.logits({257}), ConfigError);
  EXPECT_THROW(sampler.logits({-1}), ConfigError);
}

TEST_F(Sampling, KnowsThatItsTokensAreBytes) {
  EXPECT_TRUE(is_byte_level(run_->config, 8192));  // its shards say so
  RunConfig other = run_->config;
  other.data.kind = "random";
  EXPECT_TRUE(is_byte_level(other, kByteVocabulary));
  EXPECT_FALSE(is_byte_level(other, 8192));
}

TEST(DrawToken, FollowsTheProbabilities) {
  const std::vector<float> logits = {0, std::log(2.0f), std::log(5.0f)};
  SampleOptions options;
  EXPECT_EQ(draw_token(logits, options, 0.0), 0);
  EXPECT_EQ(draw_token(logits, options, 0.124), 0);
  EXPECT_EQ(draw_token(logits, options, 0.126), 1);
  EXPECT_EQ(draw_token(logits, options, 0.374), 1);
  EXPECT_EQ(draw_token(logits, options, 0.376), 2);
  EXPECT_EQ(draw_token(logits, options, 0.9999999), 2);
}

TEST(DrawToken, TemperatureSharpensAndZeroTakesTheFirstOfTheLikeliest) {
  SampleOptions options;
  options.temperature = 0.5;  // 1 : 4 : 25
  const std::vector<float> logits = {0, std::log(2.0f), std::log(5.0f)};
  EXPECT_EQ(draw_token(logits, options, 0.99 / 30), 0);
  EXPECT_EQ(draw_token(logits, options, 4.99 / 30), 1);
  EXPECT_EQ(draw_token(logits, options, 5.01 / 30), 2);
  options.temperature = 0;
  EXPECT_EQ(draw_token({1, 7, 7, 3}, options, 0.99), 1);
}

TEST(DrawToken, TopKAndAllowedLeaveTheOthersOut) {
  SampleOptions options;
  options.top_k = 2;
  for (double u = 0; u < 1; u += 0.01) EXPECT_GE(draw_token({0, 1, 2}, options, u), 1);
  options.top_k = 0;
  options.allowed = 2;
  for (double u = 0; u < 1; u += 0.01) EXPECT_LT(draw_token({0, 1, 9}, options, u), 2);
}

TEST(OpenTrainedRun, SaysWhatIsMissing) {
  const TemporaryFolder folder;
  EXPECT_THROW(open_trained_run(folder.path()), IoError);
}

}  // namespace
}  // namespace vitrine

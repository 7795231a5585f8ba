// A run that stops and goes on is the run that never stopped: the same weights, bitwise, from the
// same samples.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/checkpoint_writer.h"
#include "core/error.h"
#include "data/loader.h"
#include "support/engine_harness.h"
#include "support/scratch.h"

namespace vitrine::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kRanks = 2;
constexpr int64_t kSamples = 41,
                  kAllSteps = 12;  // 96 samples in all: an epoch ends in mid-batch, twice

// Sample i is a motif that follows from i.
class MotifDataset : public Dataset {
 public:
  int64_t size() const override { return kSamples; }
  const std::vector<FieldSpec>& fields() const override { return fields_; }
  void fill(int64_t index, uint64_t, std::span<const TensorView> views) const override {
    const OwnedBatch sample = token_batch(kToyVocab, kToyLength, index, 1, 1);
    for (size_t f = 0; f < views.size(); ++f) {
      std::memcpy(views[f].data, sample.data[f].second.data(), sample.data[f].second.size());
    }
  }

 private:
  std::vector<FieldSpec> fields_ = {{"tokens", {kToyLength}, DType::kI32},
                                    {"targets", {kToyLength}, DType::kI32}};
};

EngineOptions options_of(const Strategy& strategy) {
  EngineOptions options;
  options.strategy = strategy;
  options.optimizer.lr = 1e-3;
  options.schedule.warmup_steps = 3;
  options.schedule.total_steps = kAllSteps;
  return options;
}

// Global sample numbers by step, as a multiset of dataset indices.
class SeenSamples {
 public:
  void add(int64_t step, const std::vector<int64_t>& samples) {
    const std::lock_guard lock(mutex_);
    auto& all = steps_[step];
    all.insert(all.end(), samples.begin(), samples.end());
    std::sort(all.begin(), all.end());
  }
  const std::map<int64_t, std::vector<int64_t>>& steps() const { return steps_; }

 private:
  std::mutex mutex_;
  std::map<int64_t, std::vector<int64_t>> steps_;
};

// Trains until `until` steps are done, after going on from `folder` when it holds a checkpoint, and
// saves there.
void train_until(const Strategy& strategy,
                 int64_t until,
                 const std::string& folder,
                 SeenSamples& seen) {
  const MotifDataset dataset;
  on_ranks(kRanks, [&](int rank, World* world) {
    const auto engine = initialize(toy_decoder(2, true, kToyVocab),
                                   toy_batch(strategy.micro_batch),
                                   options_of(strategy),
                                   world);
    if (std::filesystem::exists(folder)) engine->load(folder);
    LoaderOptions loader_options;
    loader_options.seed = 9;
    loader_options.layout = {strategy.micro_batch, strategy.accumulation, rank, kRanks};
    loader_options.workers = 2;
    loader_options.first_step = engine->steps_done();
    BatchLoader loader(dataset, loader_options, engine->ledger());
    while (engine->steps_done() < until) {
      std::shared_ptr<const Batch> batch;
      const int64_t step = engine->steps_done();
      engine->train_step([&](int micro) -> BatchViews {
        batch = loader.next(step, micro);
        seen.add(step, batch->samples());
        return {{"tokens", batch->view("tokens")}, {"targets", batch->view("targets")}};
      });
    }
    engine->save(folder, R"({"note": "test"})");
  });
}

std::map<CheckpointReader::Key, std::vector<std::byte>> contents(const std::string& folder) {
  const CheckpointReader reader = CheckpointReader::open(folder);
  std::map<CheckpointReader::Key, std::vector<std::byte>> all;
  for (const auto& [key, info] : reader.states()) {
    std::vector<std::byte>& bytes = all[key];
    bytes.resize(static_cast<size_t>(info.elements) * dtype_bytes(info.dtype));
    reader.read(key.first, key.second, 0, info.elements, info.dtype, bytes.data());
  }
  return all;
}

// Stage, dtype of the model, dtype of masters and moments.
class Resume : public ::testing::TestWithParam<std::tuple<int, DType, DType>> {
 protected:
  Strategy strategy() const {
    Strategy strategy = toy_strategy(kRanks, std::get<0>(GetParam()), 2);
    strategy.compute_dtype = std::get<1>(GetParam());
    strategy.master_dtype = strategy.moment_dtype = std::get<2>(GetParam());
    return strategy;
  }
};

TEST_P(Resume, TwiceEqualsAnUninterruptedRunBitwise) {
  const ScratchFolder scratch;
  SeenSamples whole_seen, parts_seen;
  train_until(strategy(), kAllSteps, scratch / "whole", whole_seen);
  for (const int64_t until : {int64_t{5}, int64_t{9}, kAllSteps}) {
    train_until(strategy(), until, scratch / "parts", parts_seen);
  }
  const auto whole = contents(scratch / "whole"), parts = contents(scratch / "parts");
  EXPECT_GT(whole.size(), 3u * 10);
  ASSERT_EQ(whole.size(), parts.size());
  for (const auto& [key, bytes] : whole) EXPECT_TRUE(bytes == parts.at(key)) << key.first;
  EXPECT_EQ(whole_seen.steps(), parts_seen.steps());
}

TEST_P(Resume, RepeatsAndSkipsNoSample) {
  const ScratchFolder scratch;
  SeenSamples seen;
  for (const int64_t until : {int64_t{5}, int64_t{9}, kAllSteps}) {
    train_until(strategy(), until, scratch / "run", seen);
  }
  ASSERT_EQ(seen.steps().size(), static_cast<size_t>(kAllSteps));
  std::map<int64_t, int> times;
  for (const auto& [step, samples] : seen.steps()) {
    EXPECT_EQ(samples.size(), static_cast<size_t>(strategy().global_batch())) << "step " << step;
    for (const int64_t sample : samples) ++times[sample];
  }
  // 96 = 2 * 41 + 14: each sample twice, fourteen of them a third time.
  int third = 0;
  for (int64_t sample = 0; sample < kSamples; ++sample) {
    EXPECT_GE(times[sample], 2) << sample;
    EXPECT_LE(times[sample], 3) << sample;
    third += times[sample] == 3;
  }
  EXPECT_EQ(third, 14);
}

INSTANTIATE_TEST_SUITE_P(Stages,
                         Resume,
                         ::testing::Values(std::tuple{0, DType::kF32, DType::kF32},
                                           std::tuple{3, DType::kF32, DType::kF32},
                                           std::tuple{3, DType::kBF16, DType::kF32},
                                           std::tuple{1, DType::kBF16, DType::kBF16},
                                           std::tuple{3, DType::kBF16, DType::kBF16}),
                         [](const auto& info) {
                           return "Stage" + std::to_string(std::get<0>(info.param)) +
                                  dtype_name(std::get<1>(info.param)) + "States" +
                                  dtype_name(std::get<2>(info.param));
                         });

TEST(ResumeElsewhere, ACheckpointOfStage3OnTwoRanksLoadsAtAnyStageAndWorldSize) {
  const ScratchFolder scratch;
  SeenSamples seen;
  train_until(toy_strategy(kRanks, 3, 2), 4, scratch / "run", seen);
  const auto saved = contents(scratch / "run");
  for (const int ranks : {1, 4}) {
    for (const int stage : {0, 1, 3}) {
      Strategy strategy = toy_strategy(ranks, stage, 8 / (2 * ranks));  // the same global batch
      const std::string again = scratch / ("again" + std::to_string(ranks) + std::to_string(stage));
      on_ranks(ranks, [&](int, World* world) {
        const auto engine =
            initialize(toy_decoder(2, true, kToyVocab), toy_batch(2), options_of(strategy), world);
        engine->load(scratch / "run");
        EXPECT_EQ(engine->steps_done(), 4);
        engine->save(again, "{}");
      });
      EXPECT_TRUE(contents(again) == saved) << ranks << " ranks, stage " << stage;
    }
  }
}

// fp32 states load as their nearest bf16, and bf16 states exactly as fp32.
TEST(ResumeElsewhere, StatesAreConvertedBetweenFp32AndBf16) {
  const ScratchFolder scratch;
  SeenSamples seen;
  Strategy wide = toy_strategy(kRanks, 1, 2), narrow = wide;
  wide.compute_dtype = narrow.compute_dtype = DType::kBF16;
  narrow.master_dtype = narrow.moment_dtype = DType::kBF16;
  train_until(wide, 4, scratch / "wide", seen);
  const auto reload = [&](const Strategy& strategy, const char* from, const char* to) {
    on_ranks(kRanks, [&](int, World* world) {
      const auto engine =
          initialize(toy_decoder(2, true, kToyVocab), toy_batch(2), options_of(strategy), world);
      engine->load(scratch / from);
      engine->save(scratch / to, "{}");
    });
  };
  reload(narrow, "wide", "narrow");
  reload(wide, "narrow", "again");
  const auto first = contents(scratch / "wide"), cut = contents(scratch / "narrow"),
             again = contents(scratch / "again");
  ASSERT_EQ(cut.size(), first.size());
  for (const auto& [key, bytes] : first) {
    const size_t count = bytes.size() / 4;
    ASSERT_EQ(cut.at(key).size(), count * 2) << key.first;
    std::vector<std::byte> rounded(count * 2), widened(count * 4);
    const auto n = static_cast<int64_t>(count);
    convert(DType::kBF16, rounded.data(), DType::kF32, bytes.data(), n);
    convert(DType::kF32, widened.data(), DType::kBF16, rounded.data(), n);
    EXPECT_TRUE(cut.at(key) == rounded) << key.first;
    EXPECT_TRUE(again.at(key) == widened) << key.first;
  }
}

class LoadErrors : public ::testing::Test {
 protected:
  LoadErrors() { engine(24)->save(folder(), "{}"); }
  static std::unique_ptr<Engine> engine(int64_t width, int layers = 2) {
    return initialize(
        toy_decoder(layers, true, kToyVocab, width), toy_batch(2), options_of(toy_strategy(1, 0)));
  }
  std::string folder() const { return scratch_ / "checkpoints"; }
  ScratchFolder scratch_;
};

TEST_F(LoadErrors, MissingOptimizerStateIsAnErrorUnlessMeant) {
  const CheckpointReader reader = CheckpointReader::open(folder());
  const std::string bare = scratch_ / "bare";
  std::vector<std::vector<float>> values;
  {
    CheckpointWriter writer(bare, 0, 0, 1);
    for (const auto& [key, info] : reader.states()) {
      if (key.second != StateKind::kMaster) continue;
      values.emplace_back(static_cast<size_t>(info.elements));
      reader.read(key.first, key.second, 0, info.elements, DType::kF32, values.back().data());
      writer.add(
          key.first, key.second, info.shape, DType::kF32, 0, info.elements, values.back().data());
    }
    writer.commit({writer.finish_rank()}, Json::object());
  }
  const auto fresh = engine(24);
  EXPECT_THAT(
      message_of<ConfigError>([&] { fresh->load(bare); }),
      AllOf(HasSubstr("no optimizer state"), HasSubstr("exp_avg"), HasSubstr("embed.table")));
  EXPECT_NO_THROW(fresh->load(bare, false));
}

TEST_F(LoadErrors, OtherShapesAndOtherModelsAreNamed) {
  EXPECT_THAT(message_of<ConfigError>([&] { engine(32)->load(folder()); }),
              AllOf(HasSubstr("embed.table"), HasSubstr("[53, 24]"), HasSubstr("[53, 32]")));
  EXPECT_THAT(message_of<IoError>([&] { engine(24, 3)->load(folder()); }), HasSubstr("body.2."));
}

TEST_F(LoadErrors, AnotherGlobalBatchIsRefusedBecauseSamplesWouldRepeat) {
  Strategy strategy = toy_strategy(1, 0, 3);
  const auto other =
      initialize(toy_decoder(2, true, kToyVocab), toy_batch(2), options_of(strategy));
  EXPECT_THAT(message_of<ConfigError>([&] { other->load(folder()); }),
              AllOf(HasSubstr("global batch of 2"),
                    HasSubstr("this run has 6"),
                    HasSubstr("train_batch_size")));
}

TEST_F(LoadErrors, AFlippedBitIsFoundAndItsFileNamed) {
  const std::string file = folder() + "/step-000000/rank00000.safetensors";
  const auto size = static_cast<int64_t>(std::filesystem::file_size(file));
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(size - 5);
  const char byte = static_cast<char>(stream.get() ^ 1);
  stream.seekp(size - 5);
  stream.put(byte);
  stream.close();
  EXPECT_THAT(message_of<IoError>([&] { engine(24)->load(folder()); }),
              HasSubstr("rank00000.safetensors"));
}

TEST_F(LoadErrors, AFolderWithoutCheckpointsIsNamed) {
  EXPECT_THAT(message_of<IoError>([&] { engine(24)->load(scratch_ / "nothing"); }),
              HasSubstr("nothing"));
}

}  // namespace
}  // namespace vitrine::testing

// The loader: an order that follows from the step alone, whatever the layout, threads or resume
// point.
#include "data/loader.h"

#include <atomic>
#include <chrono>
#include <set>

#include "core/error.h"
#include "data/balls.h"
#include "data/sampler.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

// Sample i is the pair (i, epoch seed); a sample may be told to fail or to be slow.
class Numbers : public Dataset {
 public:
  explicit Numbers(int64_t size) : size_(size) {}
  int64_t size() const override { return size_; }
  const std::vector<FieldSpec>& fields() const override { return fields_; }
  void fill(int64_t index, uint64_t epoch_seed, std::span<const TensorView> views) const override {
    if (index == bad) throw IoError("sample " + std::to_string(index) + " is damaged");
    if (delay_ms > 0) std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms));
    ++filled;
    views[0].as<int32_t>()[0] = static_cast<int32_t>(index);
    views[1].as<int32_t>()[0] = static_cast<int32_t>(epoch_seed & 0x7fffffff);
    views[1].as<int32_t>()[1] = -1;
  }
  int64_t bad = -1;
  int delay_ms = 0;
  mutable std::atomic<int64_t> filled = 0;

 private:
  int64_t size_;
  std::vector<FieldSpec> fields_{{"number", Shape{1}, DType::kI32},
                                 {"seed", Shape{2}, DType::kI32}};
};

std::vector<int64_t> numbers(const Batch& batch) {
  const TensorView& view = batch.view("number");
  std::vector<int64_t> values(view.as<int32_t>(), view.as<int32_t>() + view.elements());
  EXPECT_EQ(values, batch.samples());
  return values;
}

// Global batches [steps][place] gathered over all ranks of a layout.
std::vector<std::vector<int64_t>> global_batches(const Dataset& data,
                                                 BatchLayout layout,
                                                 int workers,
                                                 int64_t steps) {
  MemoryLedger ledger;
  std::vector<std::vector<int64_t>> result(static_cast<size_t>(steps));
  for (auto& batch : result) batch.assign(static_cast<size_t>(layout.global_batch()), -1);
  for (layout.rank = 0; layout.rank < layout.world; ++layout.rank) {
    BatchLoader loader(data, {.seed = 3, .layout = layout, .workers = workers}, ledger);
    for (int64_t step = 0; step < steps; ++step) {
      for (int64_t micro = 0; micro < layout.accumulation; ++micro) {
        const std::vector<int64_t> values = numbers(*loader.next(step, micro));
        for (size_t i = 0; i < values.size(); ++i) {
          const int64_t place =
              (micro * layout.world + layout.rank) * layout.micro_batch + static_cast<int64_t>(i);
          result[static_cast<size_t>(step)][static_cast<size_t>(place)] = values[i];
        }
      }
    }
  }
  return result;
}

TEST(Loader, EveryLayoutOfOneGlobalBatchReadsTheSameSamplesInTheSamePlaces) {
  const Numbers data(29);
  const auto expected = global_batches(data, {.micro_batch = 2, .accumulation = 6}, 0, 8);
  EXPECT_EQ(expected[1][4], sample_place(29, 3, 16).sample);
  for (const int64_t world : {1, 2, 3, 6}) {
    for (const int workers : {1, 3}) {
      const BatchLayout layout{.micro_batch = 2, .accumulation = 6 / world, .world = world};
      EXPECT_EQ(global_batches(data, layout, workers, 8), expected) << world << " " << workers;
    }
  }
}

TEST(Loader, AnEpochHoldsEachSampleOnce) {
  const Numbers data(24);
  const auto batches =
      global_batches(data, {.micro_batch = 4, .accumulation = 1, .world = 2}, 2, 6);
  for (size_t epoch = 0; epoch < 2; ++epoch) {
    std::multiset<int64_t> seen;
    for (size_t step = 0; step < 3; ++step) {
      for (const int64_t value : batches[3 * epoch + step]) seen.insert(value);
    }
    for (int64_t i = 0; i < 24; ++i) EXPECT_EQ(seen.count(i), 1u);
  }
  EXPECT_NE(batches[0], batches[3]);
}

TEST(Loader, ResumesAtAnyStepWithoutState) {
  const Numbers data(1000);
  MemoryLedger ledger;
  const BatchLayout layout{.micro_batch = 3, .accumulation = 2, .rank = 1, .world = 4};
  BatchLoader whole(data, {.seed = 8, .layout = layout, .workers = 2}, ledger);
  std::map<std::pair<int64_t, int64_t>, std::vector<int64_t>> expected;
  for (int64_t step = 0; step < 20; ++step) {
    for (int64_t micro = 0; micro < 2; ++micro) {
      expected[{step, micro}] = numbers(*whole.next(step, micro));
    }
  }
  BatchLoader resumed(data, {.seed = 8, .layout = layout, .workers = 2, .first_step = 13}, ledger);
  EXPECT_EQ(numbers(*resumed.next(13, 0)), (expected[{13, 0}]));
  EXPECT_EQ(numbers(*resumed.next(13, 1)), (expected[{13, 1}]));
  for (const int64_t step : {4, 5, 19, 0}) {  // and jumps, as after a rollback
    EXPECT_EQ(numbers(*resumed.next(step, 1)), (expected[{step, 1}])) << step;
  }
}

TEST(Loader, BatchesLiveAsLongAsTheyAreHeldAndAreInTheLedger) {
  const Numbers data(100);
  MemoryLedger ledger;
  {
    BatchLoader loader(data, {.layout = {.micro_batch = 5}, .workers = 2, .prefetch = 2}, ledger);
    const auto first = loader.next(0, 0);
    const std::vector<int64_t> before = numbers(*first);
    for (int64_t step = 1; step < 30; ++step) loader.next(step, 0);
    EXPECT_EQ(numbers(*first), before);
    EXPECT_GE(ledger.current(MemoryCategory::kStaging), 5 * 3 * 4);
    // The held one, two ready, and at most one a worker or the caller in hand.
    EXPECT_LE(ledger.peak(MemoryCategory::kStaging), 6 * 5 * 3 * 4);
  }
  EXPECT_EQ(ledger.current(), 0);
}

TEST(Loader, TheEpochSeedIsThatOfTheEpoch) {
  const Numbers data(8);
  MemoryLedger ledger;
  BatchLoader loader(data, {.layout = {.micro_batch = 4}}, ledger);
  std::vector<int32_t> seeds;
  for (int64_t step = 0; step < 4; ++step) {
    seeds.push_back(loader.next(step, 0)->view("seed").as<int32_t>()[0]);
  }
  EXPECT_EQ(seeds[0], seeds[1]);
  EXPECT_EQ(seeds[2], seeds[3]);
  EXPECT_NE(seeds[1], seeds[2]);
  EXPECT_EQ(loader.epoch_of(1), 0);
  EXPECT_EQ(loader.epoch_of(2), 1);
}

TEST(Loader, AnErrorInAWorkerIsThrownAtItsOwnBatch) {
  for (const int workers : {0, 2}) {
    Numbers data(16);
    data.bad = sample_place(16, 0, 9).sample;  // in step 2 of batches of 4
    MemoryLedger ledger;
    BatchLoader loader(data, {.layout = {.micro_batch = 4}, .workers = workers}, ledger);
    loader.next(0, 0);
    loader.next(1, 0);
    EXPECT_CONTAINS(message_of<IoError>([&] { loader.next(2, 0); }), "is damaged");
    EXPECT_EQ(loader.next(3, 0)->samples().size(), 4u);
  }
}

TEST(Loader, TellsASlowDatasetFromASlowReader) {
  Numbers data(64);
  MemoryLedger ledger;
  const LoaderOptions options{.layout = {.micro_batch = 1}, .workers = 1, .prefetch = 2};
  data.delay_ms = 4;
  {
    BatchLoader loader(data, options, ledger);
    for (int64_t step = 0; step < 15; ++step) loader.next(step, 0);
    EXPECT_GT(loader.wait().share(), 0.8);
    EXPECT_EQ(loader.wait().batches, 15);
    loader.reset_wait();
    EXPECT_EQ(loader.wait().wait_ns, 0);
    EXPECT_EQ(loader.wait().share(), 0);
  }
  data.delay_ms = 0;
  BatchLoader loader(data, options, ledger);
  for (int64_t step = 0; step < 15; ++step) {
    loader.next(step, 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(4));
  }
  EXPECT_LT(loader.wait().share(), 0.5);
}

TEST(Loader, StaysWithinItsPrefetch) {
  const Numbers data(1000);
  MemoryLedger ledger;
  BatchLoader loader(data, {.layout = {.micro_batch = 1}, .workers = 2, .prefetch = 3}, ledger);
  loader.next(0, 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(data.filled, 4);
}

TEST(Loader, RefusesLayoutsThatMakeNoSense) {
  const Numbers data(4), empty(0);
  MemoryLedger ledger;
  const auto refused = [&](const Dataset& dataset, LoaderOptions options) {
    return message_of<ConfigError>([&] { BatchLoader(dataset, options, ledger); });
  };
  EXPECT_CONTAINS(refused(data, {.layout = {.micro_batch = 0}}), "micro-batch 0");
  EXPECT_CONTAINS(refused(data, {.layout = {.rank = 2, .world = 2}}), "rank 2 of 2");
  EXPECT_CONTAINS(refused(data, {.prefetch = 0}), "prefetch 0");
  EXPECT_CONTAINS(refused(empty, {}), "empty");
  BatchLoader loader(data, {}, ledger);
  EXPECT_CONTAINS(message_of<ConfigError>([&] { loader.next(0, 0)->view("frames"); }),
                  "it has number, seed");
}

TEST(ClipDataset, GivesFramesActionsAndStateOfTheClip) {
  ScratchFolder folder;
  BallsOptions options;
  options.episodes = 3;
  options.episode_frames = 6;
  write_balls(options, folder / "c");
  const auto cache = std::make_shared<FrameCache>(FrameCache::open(folder / "c"));
  const ClipDataset data(cache, 4, 1, true);
  EXPECT_EQ(data.size(), 9);
  MemoryLedger ledger;
  BatchLoader loader(data, {.layout = {.micro_batch = 9}}, ledger);
  const auto batch = loader.next(0, 0);
  EXPECT_EQ(batch->view("frames").shape, (Shape{9, 4, 24, 24, 3}));
  EXPECT_EQ(batch->view("state").shape, (Shape{9, 4, 1, 4}));
  for (size_t row = 0; row < 9; ++row) {
    const int64_t first = data.clips().first_frame(batch->samples()[row]);
    for (int64_t t = 0; t < 4; ++t) {
      const int64_t place = static_cast<int64_t>(row) * 4 + t;
      EXPECT_EQ(batch->view("actions").as<int32_t>()[place], *cache->discrete_action(first + t));
      EXPECT_EQ(batch->view("state").as<float>()[4 * place], cache->state(first + t)[0]);
      const float* frame = batch->view("frames").as<float>() + place * 24 * 24 * 3;
      for (int64_t i = 0; i < 24 * 24 * 3; ++i) {
        ASSERT_EQ(frame[i], static_cast<float>(cache->frame(first + t)[i]) / 255.0f);
      }
    }
  }
}

TEST(ClipDataset, KeepsContinuousActionsAndMissesNoState) {
  ScratchFolder folder;
  FrameCacheMeta meta;
  meta.action_kind = FrameActions::kContinuous;
  meta.action_count = 2;
  {
    FrameCacheWriter writer(folder / "c", meta, 1, 1);
    const uint8_t frames[9] = {};
    const float actions[6] = {1, 2, 3, 4, 5, 6};
    writer.append(0, 3, frames, actions, nullptr);
    writer.finish();
  }
  const auto cache = std::make_shared<FrameCache>(FrameCache::open(folder / "c"));
  const ClipDataset data(cache, 2);
  EXPECT_EQ(data.fields()[1].shape, (Shape{2, 2}));
  float frames[6], actions[4];
  const TensorView views[] = {{frames, Shape{2, 1, 1, 3}, DType::kF32},
                              {actions, Shape{2, 2}, DType::kF32}};
  data.fill(1, 0, views);
  EXPECT_EQ(actions[0], 3);
  EXPECT_EQ(actions[3], 6);
  EXPECT_CONTAINS(message_of<ConfigError>([&] { ClipDataset(cache, 2, 1, true); }), "no state.npy");
}

TEST(TokenDataset, GivesTokensAndTheNextOnes) {
  ScratchFolder folder;
  write_token_shard(folder / "a.bin", {0, 1, 2, 3, 4, 5, 6, 7, 8}, 9);
  const TokenDataset data(std::make_shared<TokenShards>(TokenShards::open(folder.path())), 4, 9);
  EXPECT_EQ(data.size(), 2);
  MemoryLedger ledger;
  BatchLoader loader(data, {.layout = {.micro_batch = 2}}, ledger);
  const auto batch = loader.next(0, 0);
  for (int64_t i = 0; i < 8; ++i) {
    EXPECT_EQ(batch->view("targets").as<int32_t>()[i], batch->view("tokens").as<int32_t>()[i] + 1);
  }
}

}  // namespace
}  // namespace vitrine

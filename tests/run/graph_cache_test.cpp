// When a block's work is issued, captured, replayed, forgotten: on a device that only counts.
#include "run/graph_cache.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "core/error.h"
#include "support/forwarding_device.h"

namespace vitrine::testing {
namespace {

// Recorded work tells `replays` which record it is.
class CountingDevice : public ForwardingDevice {
 public:
  std::unique_ptr<CapturedWork> capture_work(const std::function<void()>& issue,
                                             std::string& why) override {
    ++records;
    inside = true;
    try {
      issue();
    } catch (const Error& error) {
      why = error.what();
    }
    inside = false;
    if (!can) why = "not this";
    if (!why.empty()) return {};
    return std::make_unique<Work>(*this, records);
  }
  std::shared_ptr<void> timed_point() override { return std::make_shared<int>(0); }
  bool passed(const std::shared_ptr<void>&) override { return is_passed; }
  int64_t elapsed_ns(const std::shared_ptr<void>&, const std::shared_ptr<void>&) override {
    return device_ns;
  }

  bool can = true, inside = false, is_passed = true;
  int64_t device_ns = 0;
  int records = 0, alive = 0;
  std::vector<int> replays;

 private:
  struct Work : CapturedWork {
    Work(CountingDevice& from, int n) : device(from), number(n) { ++device.alive; }
    ~Work() override { --device.alive; }
    void issue() override { device.replays.push_back(number); }
    CountingDevice& device;
    int number;
  };
};

GraphKey key(std::initializer_list<uint64_t> words) {
  GraphKey made;
  for (const uint64_t word : words) made.add(word);
  return made;
}

class GraphCaching : public ::testing::Test {
 protected:
  // How the work was done: "issued", or "replay N".
  std::string run(GraphCache& cache, int action, const GraphKey& of) {
    int issued = 0;
    device_.replays.clear();
    cache.run(action, of, [&] { issued += device_.inside ? 0 : 1; });
    EXPECT_EQ(issued + static_cast<int>(device_.replays.size()), 1);
    return issued > 0 ? "issued" : "replay " + std::to_string(device_.replays.at(0));
  }
  CountingDevice device_;
  GraphCache always_{device_, false}, measured_{device_, true};
};

TEST_F(GraphCaching, IssuesFirstThenReplaysWhatHasTheSameKey) {
  const GraphKey same = key({1, 2, 3});
  EXPECT_EQ(run(always_, 0, same), "issued");
  EXPECT_EQ(device_.records, 0);  // first calls choose kernels, which no graph can hold
  for (int i = 0; i < 3; ++i) EXPECT_EQ(run(always_, 0, same), "replay 1");
  EXPECT_EQ(always_.counts().issued, 1);
  EXPECT_EQ(always_.counts().replayed, 3);
  EXPECT_EQ(always_.counts().captured, 1);
}

TEST_F(GraphCaching, IssuesWhereAnyWordOrTheActionDiffers) {
  run(always_, 0, key({1, 2, 3}));
  EXPECT_EQ(run(always_, 0, key({1, 2, 3})), "replay 1");
  for (const GraphKey& other : {key({9, 2, 3}), key({1, 9, 3}), key({1, 2, 9})}) {
    EXPECT_EQ(run(always_, 0, other), "issued");
  }
  EXPECT_EQ(run(always_, 0, key({1, 2, 3})), "replay 1");
  EXPECT_EQ(run(always_, 1, key({1, 2, 3})), "issued");
  EXPECT_EQ(run(always_, 1, key({1, 2, 3})), "replay 2");
  EXPECT_EQ(run(always_, 0, key({1, 2, 3})), "replay 1");
}

TEST_F(GraphCaching, HoldsFewKeysAnActionAndForgetsTheLongestUnused) {
  const auto limit = static_cast<uint64_t>(always_.keys_an_action());
  for (uint64_t k = 0; k < limit; ++k) {
    run(always_, 0, key({k}));
    run(always_, 0, key({k}));
  }
  EXPECT_EQ(device_.alive, static_cast<int>(limit));
  run(always_, 0, key({0}));  // used again: key 1 is now the longest unused
  EXPECT_EQ(run(always_, 0, key({limit})), "issued");
  EXPECT_EQ(device_.alive, static_cast<int>(limit));  // it may still run
  always_.begin_step();
  EXPECT_EQ(device_.alive, static_cast<int>(limit) - 1);
  EXPECT_EQ(run(always_, 0, key({0})), "replay 1");
  EXPECT_EQ(run(always_, 0, key({1})), "issued");
}

TEST_F(GraphCaching, StopsRecordingAnActionWhoseKeysNeverSettle) {
  for (uint64_t k = 0; k < 100; ++k) {
    run(always_, 0, key({k}));
    run(always_, 0, key({k}));
    always_.begin_step();
  }
  const int limit = static_cast<int>(always_.keys_an_action());
  EXPECT_EQ(device_.records, GraphCache::kCapturesAKey * limit);
  EXPECT_LE(device_.alive, limit);
}

TEST_F(GraphCaching, IssuesForGoodWhatCannotBeRecorded) {
  device_.can = false;
  for (int i = 0; i < 4; ++i) EXPECT_EQ(run(always_, 0, key({1})), "issued");
  device_.can = true;
  EXPECT_EQ(run(always_, 0, key({1})), "issued");
  EXPECT_EQ(device_.records, 1);
  EXPECT_EQ(always_.counts().refused, 1);
  EXPECT_EQ(always_.counts().why_refused, "not this");
  EXPECT_EQ(always_.counts().issued, 5);
}

TEST_F(GraphCaching, ThrowsOnWhatIssuingThrows) {
  const auto fail = [] { throw ShapeError("wrong"); };
  run(always_, 0, key({1}));
  for (int i = 0; i < 2; ++i) EXPECT_THROW(always_.run(0, key({1}), fail), ShapeError);
  EXPECT_EQ(always_.counts().refused, 1);
}

TEST_F(GraphCaching, MeasuresBeforeItRecords) {
  const auto slow_host = [] { std::this_thread::sleep_for(std::chrono::milliseconds(1)); };
  const auto replays = [&](GraphCache& cache) {
    for (int i = 0; i < 4; ++i) cache.run(0, key({1}), slow_host);
    return cache.counts().replayed;
  };
  device_.device_ns = 1;
  EXPECT_EQ(replays(measured_), 2);  // the first run chooses kernels, the second is measured
  GraphCache busy(device_, true);
  device_.device_ns = int64_t{3'600'000'000'000};
  EXPECT_EQ(replays(busy), 0);
  GraphCache early(device_, true);
  device_.device_ns = 1;
  device_.is_passed = false;  // the device is still at it
  EXPECT_EQ(replays(early), 0);
  device_.is_passed = true;
  EXPECT_EQ(replays(early), 4);
}

TEST_F(GraphCaching, HoldsMoreKeysWhereMicroBatchesTakeTurns) {
  EXPECT_EQ(GraphCache(device_, false, 3).keys_an_action(), 3 * always_.keys_an_action());
  EXPECT_EQ(GraphCache(device_, false, 1'000'000).keys_an_action(),
            static_cast<size_t>(GraphCache::kMostKeys));
}

TEST(Graphs, AreNamed) {
  for (const Graphs graphs : {Graphs::kOff, Graphs::kAuto, Graphs::kOn}) {
    EXPECT_EQ(graphs_from_name(graphs_name(graphs)), graphs);
  }
  EXPECT_THROW(graphs_from_name("yes"), ConfigError);
}

}  // namespace
}  // namespace vitrine::testing

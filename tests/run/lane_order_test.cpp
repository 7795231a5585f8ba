// What the runner tells a device about the order of its lanes, seen by a device that writes it
// down.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>

#include "support/forwarding_device.h"
#include "support/toy_models.h"
#include "support/train_harness.h"

namespace vitrine::testing {
namespace {

thread_local int lane_of_thread = 0;
thread_local int works_open = 0;

// The host, with marks and points kept as a GPU would.
class NotingDevice : public ForwardingDevice {
 public:
  void enter_lane(int lane) override {
    lane_of_thread = lane;
    ForwardingDevice::enter_lane(lane);
  }
  void wait(int) override {
    const std::lock_guard lock(mutex_);
    (works_open > 0 ? waits_in_work : waits_outside)++;
  }
  std::shared_ptr<void> point() override {
    const std::lock_guard lock(mutex_);
    auto made = std::make_shared<int>(lane_of_thread);
    if (lane_of_thread == static_cast<int>(LaneId::kGather)) published.insert(made.get());
    kept_.push_back(made);
    return made;
  }
  void after(const std::shared_ptr<void>& point) override {
    const std::lock_guard lock(mutex_);
    if (published.erase(static_cast<int*>(point.get())) > 0) {
      EXPECT_EQ(lane_of_thread, static_cast<int>(LaneId::kCompute));
      ++awaited;
    }
  }

  std::set<int*> published;  // points of publishing that nobody waited for so far
  int waits_in_work = 0, waits_outside = 0, awaited = 0;

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<int>> kept_;
};

class NotingTrace : public GpuTrace {
 public:
  void begin(const GpuWork&) override { ++works_open; }
  void end() override { --works_open; }
  void forget() override {}
  void stop() override {}
  void add_to(RankTimeline&) override {}
};

struct Seen {
  std::shared_ptr<NotingDevice> device = std::make_shared<NotingDevice>();
  std::vector<int> pending, awaited;  // after each step: points of publishing
  size_t publishes = 0;               // actions of a step
  int lanes_that_end = 0;             // beside compute, with a last action that is no publish
};

// Two ranks, three steps. Rank 0's device is noted.
Seen run(int stage) {
  Strategy strategy;
  strategy.mesh.data = 2;
  strategy.shard = Sharding::stage(stage);
  strategy.micro_batch = 2;
  strategy.persistence_threshold = 0;
  const BatchTypes types = {{"tokens", {{2, 11}, DType::kI32}},
                            {"targets", {{2, 11}, DType::kI32}}};
  const auto batches = [](int64_t step, int, int data_index) {
    return token_batch(53, 11, step * 4 + data_index * 2, 2, 1);
  };
  Seen seen;
  NotingTrace trace;
  HarnessHooks hooks;
  hooks.execution = [&](int rank) {
    Execution execution = cpu_execution();
    if (rank == 0) execution.device = seen.device;
    return execution;
  };
  Recorder recorder(0, 2, {});
  hooks.recorder = [&](int rank) { return rank == 0 ? &recorder : nullptr; };
  hooks.prepare = [&](int rank, Runner& runner) {
    if (rank == 0) runner.set_gpu_trace(&trace);
  };
  hooks.step_done = [&](int rank, const Schedule& schedule) {
    if (rank != 0) return;
    seen.pending.push_back(static_cast<int>(seen.device->published.size()));
    seen.awaited.push_back(seen.device->awaited);
    std::map<LaneId, ActionKind> last;
    for (const Action& a : schedule.actions) last[a.lane] = a.kind;
    seen.lanes_that_end =
        static_cast<int>(std::count_if(last.begin(), last.end(), [](const auto& l) {
          return l.first != LaneId::kCompute && l.second != ActionKind::kPublish;
        }));
    seen.publishes = static_cast<size_t>(
        std::count_if(schedule.actions.begin(), schedule.actions.end(), [](const Action& a) {
          return a.kind == ActionKind::kPublish;
        }));
  };
  train([] { return toy_decoder(2, true, 53); }, types, batches, strategy, 3, {}, 1, hooks);
  return seen;
}

TEST(LaneOrder, WhatIsPublishedIsAwaitedByTheNextStep) {
  for (const int stage : {1, 2}) {
    const Seen seen = run(stage);
    const int publishes = static_cast<int>(seen.publishes);
    ASSERT_GT(publishes, 0);
    EXPECT_EQ(seen.pending, std::vector<int>(3, publishes)) << "stage " << stage;
    EXPECT_EQ(seen.awaited, (std::vector<int>{0, publishes, 2 * publishes})) << "stage " << stage;
  }
}

TEST(LaneOrder, AnActionsWaitsBelongToItsWork) {
  for (const int stage : {0, 1, 2, 3}) {
    const Seen seen = run(stage);
    EXPECT_GT(seen.device->waits_in_work, 0) << "stage " << stage;
    // Outside only the step's end waits, once a lane that does not publish last.
    ASSERT_GT(seen.lanes_that_end, 0);
    EXPECT_EQ(seen.device->waits_outside, 3 * seen.lanes_that_end) << "stage " << stage;
    EXPECT_EQ(works_open, 0);
  }
}

}  // namespace
}  // namespace vitrine::testing

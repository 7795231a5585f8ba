// Memory facts of hand-made histories, exact, and of a real snapshot.
#include "analysis/memory_facts.h"

#include <gtest/gtest.h>

#include "analysis/memory_curve.h"
#include "readers/memory_snapshot.h"

namespace vitrine {
namespace {

using Action = AllocatorEvent::Action;

// A history of one device, written event by event; times count from 1 us.
class HistoryBuilder {
 public:
  HistoryBuilder() { snapshot.history.resize(1); }
  int32_t stack(const std::vector<std::pair<std::string, std::string>>& frames) {
    std::vector<uint32_t> ids;
    for (const auto& [function, file] : frames) {
      ids.push_back(static_cast<uint32_t>(snapshot.frames.size()));
      snapshot.frames.push_back(
          {snapshot.strings.intern(function), snapshot.strings.intern(file), 10});
    }
    snapshot.stacks.push_back(ids);
    return static_cast<int32_t>(snapshot.stacks.size() - 1);
  }
  void event(Action action, uint64_t address, int64_t bytes, int32_t stack = -1) {
    snapshot.history[0].push_back({action, address, bytes, 0, ++time_ * 1000, stack});
  }
  void alloc(uint64_t address, int64_t bytes, int32_t stack = -1) {
    event(Action::kAlloc, address, bytes, stack);
  }
  void free(uint64_t address, int64_t bytes) {
    event(Action::kFreeRequested, address, bytes);
    event(Action::kFreeCompleted, address, bytes);
  }
  void annotate(const std::string& name, bool start) {
    snapshot.annotations.push_back({++time_ * 1000, start, 0, snapshot.strings.intern(name)});
  }
  // What the segments hold at the end.
  void segment(int64_t total, int64_t allocated, int64_t free_block = 0) {
    AllocatorSegment segment;
    segment.total_bytes = total;
    segment.allocated_bytes = allocated;
    if (free_block > 0) {
      segment.blocks.push_back({1, free_block, 0, AllocatorBlock::State::kInactive, -1});
    }
    snapshot.segments.push_back(segment);
  }
  AllocatorSnapshot snapshot;

 private:
  int64_t time_ = 0;
};

int64_t of(const MemoryPoint& point, MemoryCategory category) {
  return point.by_category[static_cast<size_t>(category)];
}

void expect_sums(const MemoryFacts& facts) {
  for (const MemoryPoint& point : facts.curve) {
    int64_t sum = point.unknown;
    for (const int64_t bytes : point.by_category) sum += bytes;
    EXPECT_EQ(sum, point.allocated);
  }
  int64_t held = 0;
  for (const MemoryHolder& holder : facts.holders) held += holder.bytes;
  EXPECT_EQ(held, facts.peak_allocated);
}

TEST(MemoryFacts, AStepsBlocksGetTheirCategoriesFromAnnotationsAndLifetimes) {
  HistoryBuilder h;
  const int32_t build =
      h.stack({{"__init__", "/env/torch/nn/modules/linear.py"}, {"__init__", "/home/me/model.py"}});
  const int32_t layer =
      h.stack({{"linear", "/env/torch/nn/functional.py"}, {"forward", "/home/me/model.py"}});
  h.event(Action::kSegmentAlloc, 1, 10000);
  h.alloc(1, 1000, build);  // parameters
  h.annotate("forward", true);
  h.alloc(2, 400, layer);  // kept for backward
  h.alloc(3, 50, layer);   // temporary
  h.free(3, 50);
  h.annotate("forward", false);
  h.annotate("backward", true);
  h.alloc(4, 70);    // temporary, by the autograd engine
  h.alloc(5, 1000);  // gradients
  h.free(4, 70);
  h.free(2, 400);
  h.annotate("backward", false);
  h.annotate("Optimizer.step#AdamW.step", true);
  h.alloc(6, 2000);  // state
  h.alloc(7, 30);    // temporary
  h.free(7, 30);
  h.annotate("Optimizer.step#AdamW.step", false);
  h.annotate("forward", true);
  h.free(5, 1000);          // zero_grad
  h.alloc(8, 1500, layer);  // the history ends in this step
  h.segment(10000, 4500, 3000);
  const MemoryFacts facts = measure_memory(h.snapshot);
  EXPECT_TRUE(facts.known);
  EXPECT_TRUE(facts.category_known);
  EXPECT_FALSE(facts.starts_mid_run);
  EXPECT_EQ(facts.peak_allocated, 4500);
  EXPECT_EQ(facts.peak_reserved, 10000);
  EXPECT_EQ(facts.fragmentation, 5500);
  EXPECT_EQ(facts.largest_free_block, 3000);
  EXPECT_EQ(of(facts.at_peak, MemoryCategory::kParameters), 1000);
  EXPECT_EQ(of(facts.at_peak, MemoryCategory::kOptimizer), 2000);
  EXPECT_EQ(of(facts.at_peak, MemoryCategory::kActivations), 1500);
  EXPECT_EQ(facts.at_peak.unknown, 0);
  expect_sums(facts);
  ASSERT_EQ(facts.holders.size(), 3u);
  EXPECT_EQ(facts.holders[1].what, "forward (model.py:10)");
  EXPECT_EQ(facts.holders[1].category, "activations");
  // Before the optimizer's step: gradients beside the temporary of backward.
  const MemoryPoint& backward = facts.curve[7];
  EXPECT_EQ(of(backward, MemoryCategory::kGradients), 1000);
  EXPECT_EQ(of(backward, MemoryCategory::kActivations), 400);
  EXPECT_EQ(of(backward, MemoryCategory::kWorkspace), 70);
}

TEST(MemoryFacts, PhasesAreFoundInFramesWhereThereAreNoAnnotations) {
  HistoryBuilder h;
  const int32_t forward = h.stack({{"forward", "/home/me/model.py"}, {"train", "/home/me/t.py"}});
  const int32_t step =
      h.stack({{"_init_group", "/env/torch/optim/adam.py"}, {"train", "/home/me/t.py"}});
  const int32_t gather = h.stack({{"foreach_all_gather", "/env/torch/distributed/fsdp/a.py"},
                                  {"forward", "/home/me/model.py"}});
  const int32_t recompute = h.stack(
      {{"forward", "/home/me/model.py"}, {"recompute_fn", "/env/torch/utils/checkpoint.py"}});
  h.alloc(1, 100, gather);
  h.alloc(2, 200, forward);
  h.free(1, 100);
  h.alloc(3, 300);             // the engine's thread: a gradient
  h.alloc(4, 400, recompute);  // inside backward
  h.free(4, 400);
  h.free(2, 200);
  h.alloc(5, 500, step);
  const MemoryFacts facts = measure_memory(h.snapshot);
  EXPECT_EQ(of(facts.curve[0], MemoryCategory::kGathered), 100);
  EXPECT_EQ(of(facts.curve[1], MemoryCategory::kActivations), 200);
  EXPECT_EQ(facts.peak_allocated, 900);
  EXPECT_EQ(of(facts.at_peak, MemoryCategory::kActivations), 600);
  EXPECT_EQ(of(facts.at_peak, MemoryCategory::kGradients), 300);
  EXPECT_EQ(of(facts.curve.back(), MemoryCategory::kOptimizer), 500);
  EXPECT_EQ(facts.peak_reserved, 0);  // no segments: not known
  expect_sums(facts);
}

TEST(MemoryFacts, WhatIsOlderThanTheHistoryCountsAsUnknown) {
  HistoryBuilder h;
  h.free(9, 500);
  h.alloc(1, 100);
  h.segment(4000, 1100);
  const MemoryFacts facts = measure_memory(h.snapshot);
  EXPECT_TRUE(facts.starts_mid_run);
  EXPECT_FALSE(facts.category_known);
  EXPECT_EQ(facts.curve[0].allocated, 1000);  // 1500 before, 500 of them freed
  EXPECT_EQ(facts.peak_allocated, 1100);
  EXPECT_EQ(facts.peak_reserved, 4000);
  EXPECT_EQ(facts.holders[0].what, "in use before the history begins");
  EXPECT_EQ(facts.holders[0].bytes, 1000);
  expect_sums(facts);
}

TEST(MemoryFacts, RetriesAndOutOfMemoryAreCounted) {
  HistoryBuilder h;
  const int32_t asked = h.stack({{"empty_cache", "/env/torch/cuda/memory.py"}});
  h.event(Action::kSegmentAlloc, 1, 1000);
  h.event(Action::kSegmentFree, 1, 1000);
  h.event(Action::kSegmentAlloc, 2, 2000);  // after a failure
  h.event(Action::kSegmentFree, 2, 2000, asked);
  h.event(Action::kSegmentAlloc, 3, 3000);  // the user emptied the cache
  h.event(Action::kOutOfMemory, 77, 1 << 20);
  const MemoryFacts facts = measure_memory(h.snapshot);
  EXPECT_EQ(facts.retries, 1);
  EXPECT_EQ(facts.out_of_memory, 1);
  EXPECT_EQ(facts.peak_reserved, 3000);
}

TEST(MemoryFacts, ASnapshotWithoutHistorySaysHowToRecordOne) {
  HistoryBuilder h;
  h.segment(1000, 600, 400);
  const MemoryFacts facts = measure_memory(h.snapshot);
  EXPECT_FALSE(facts.known);
  EXPECT_EQ(facts.largest_free_block, 400);
  ASSERT_EQ(facts.notes.size(), 1u);
  EXPECT_NE(facts.notes[0].find("_record_memory_history"), std::string::npos);
}

TEST(MemoryFacts, OurOwnSamplesAreExact) {
  RankTimeline t;
  t.memory.push_back({10, {100, 0, 0, 50}});
  t.memory.push_back({20, {100, 30, 0, 200}});
  t.memory.push_back({30, {100, 30, 0, 0}});
  const MemoryFacts facts = measure_memory(t);
  EXPECT_EQ(facts.source, "ledger");
  EXPECT_TRUE(facts.category_known);
  EXPECT_EQ(facts.peak_allocated, 330);
  EXPECT_EQ(facts.peak_time_ns, 20);
  ASSERT_EQ(facts.holders.size(), 3u);
  EXPECT_EQ(facts.holders[0].what, "activations");
  EXPECT_EQ(facts.holders[0].bytes, 200);
  expect_sums(facts);
}

TEST(MemoryFacts, MemoryEventsGiveACurveAndOperatorsAsHolders) {
  RankTimeline t;
  t.info["device.memory_bytes"] = "5000";
  t.lanes.push_back({"thread", false, 1, -1});
  const auto operation = [&](const char* name, int64_t start, int64_t duration) {
    t.spans.start_ns.push_back(start);
    t.spans.duration_ns.push_back(duration);
    t.spans.name.push_back(t.strings.intern(name));
    t.spans.kind.push_back(SpanKind::kOperation);
    t.spans.lane.push_back(0);
  };
  operation("aten::linear", 0, 100);
  operation("aten::mm", 10, 50);
  t.allocations = {{20, 1, 100, 600, 1000, 0},
                   {70, 2, 40, 640, 1000, 0},
                   {80, 1, -100, 540, 1000, 0},
                   {15, 3, 8, 8, -1, -1}};  // the host's
  const MemoryFacts facts = measure_memory(t);
  EXPECT_EQ(facts.source, "[memory] events");
  EXPECT_EQ(facts.curve.size(), 3u);
  EXPECT_EQ(facts.peak_allocated, 640);
  EXPECT_EQ(facts.peak_reserved, 1000);
  EXPECT_EQ(facts.fragmentation, 360);
  EXPECT_EQ(facts.capacity, 5000);
  EXPECT_FALSE(facts.category_known);
  EXPECT_TRUE(facts.starts_mid_run);
  ASSERT_EQ(facts.holders.size(), 3u);
  EXPECT_EQ(facts.holders[0].what, "in use before the trace begins");
  EXPECT_EQ(facts.holders[0].bytes, 500);
  EXPECT_EQ(facts.holders[1].what, "aten::mm");
  EXPECT_EQ(facts.holders[2].what, "aten::linear");
  expect_sums(facts);
}

TEST(MemoryFacts, NothingRecordedIsSaidToBeUnknown) {
  const MemoryFacts facts = measure_memory(RankTimeline());
  EXPECT_FALSE(facts.known);
  EXPECT_EQ(facts.source, "");
  EXPECT_FALSE(facts.notes.empty());
}

TEST(MemoryCurve, AThinnerCurveKeepsItsPeaks) {
  std::vector<MemoryPoint> points(100000);
  for (size_t i = 0; i < points.size(); ++i) {
    points[i].time_ns = static_cast<int64_t>(i);
    points[i].allocated = static_cast<int64_t>(i % 97);
  }
  points[4321].allocated = 1000;
  points[87654].reserved = 5000;
  points[50000].allocated = -5;
  const auto thinned = thin(points, 2000);
  EXPECT_LE(thinned.size(), 2000u);
  const auto has = [&](int64_t time) {
    return std::any_of(
        thinned.begin(), thinned.end(), [&](const MemoryPoint& p) { return p.time_ns == time; });
  };
  EXPECT_TRUE(has(0) && has(4321) && has(50000) && has(87654) && has(99999));
  EXPECT_TRUE(std::is_sorted(thinned.begin(), thinned.end(), [](const auto& a, const auto& b) {
    return a.time_ns < b.time_ns;
  }));
}

TEST(MemoryReal, ActivationsHoldThePeakOfARealSnapshot) {
  const MemoryFacts facts =
      measure_memory(read_memory_snapshot("tests/readers/data/memory_snapshot_rank0.pickle.gz"));
  // As Python's pickle module and a plain loop find them.
  EXPECT_EQ(facts.peak_allocated, 28402128776);
  EXPECT_EQ(facts.peak_reserved, 30492590080);
  EXPECT_EQ(facts.peak_time_ns, 1795972659423249000);
  EXPECT_EQ(facts.largest_free_block, 4194304000);
  EXPECT_TRUE(facts.category_known);
  EXPECT_TRUE(facts.starts_mid_run);
  EXPECT_LE(facts.curve.size(), MemoryFacts::kMostPoints);
  EXPECT_GT(of(facts.at_peak, MemoryCategory::kActivations), facts.peak_allocated * 6 / 10);
  // AdamW keeps two numbers for each fp32 parameter; a buffer of 256 KiB counts with the
  // parameters.
  EXPECT_NEAR(static_cast<double>(of(facts.curve.back(), MemoryCategory::kOptimizer)),
              2.0 * static_cast<double>(of(facts.curve.back(), MemoryCategory::kParameters)),
              1 << 20);
  EXPECT_NE(facts.notes[0].find("inferred"), std::string::npos);
}

}  // namespace
}  // namespace vitrine

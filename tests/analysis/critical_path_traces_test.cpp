// Critical paths of real traces: what must hold whatever the trace, and one pair that differs in
// its data loader alone. Skipped where the data are absent.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "analysis/critical_path.h"
#include "analysis/dependency_graph.h"
#include "analysis/statistics.h"
#include "readers/kineto.h"
#include "support/shared_data.h"

namespace vitrine {
namespace {

class PathTraces : public testing::Test {
 protected:
  void SetUp() override {
    if (shared_data().empty()) GTEST_SKIP() << "no shared data (VITRINE_SHARED_DATA)";
  }
  static std::vector<std::string> files() {
    std::vector<std::string> out;
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(shared_data() + "/traces")) {
      const std::string path = entry.path();
      if (path.ends_with(".json.gz") && path.find("snapshot") == std::string::npos) {
        out.push_back(path);
      }
    }
    std::sort(out.begin(), out.end());
    return out;
  }
};

// Every node of the graph on its recorded time, no change that makes anything later.
void expect_graph(const RankTimeline& timeline) {
  const SpanOrder order(timeline.spans);
  const StepIndex steps(timeline.spans, order);
  HostWalk host = walk_host(timeline, order, steps);
  const auto device = walk_device(timeline, order, host);
  if (device.empty()) return;
  const RankParts parts{timeline, steps, host, device, {}, {}};
  const DependencyGraph graph =
      build_graph(parts, {device.front().begin, device.back().begin}, true);
  const std::vector<int64_t> now = time_graph(graph, kAsItIs);
  for (size_t i = 0; i < now.size(); ++i) {
    ASSERT_EQ(now[i], graph.nodes[i].begin_ns + graph.nodes[i].duration_ns) << "node " << i;
  }
  for (size_t group = 1; group < kScaleGroups; ++group) {
    Scale scale = kAsItIs;
    scale[group] = 1;
    const std::vector<int64_t> faster = time_graph(graph, scale);
    for (size_t i = 0; i < now.size(); ++i) ASSERT_LE(faster[i], now[i]) << "node " << i;
  }
}

TEST_F(PathTraces, ThePathFillsItsSpanAndNoChangeMakesItLonger) {
  size_t known = 0;
  for (const std::string& file : files()) {
    SCOPED_TRACE(file);
    const RankTimeline timeline = read_kineto(file);
    const PathFacts path = measure_rank(timeline).critical_path;
    expect_graph(timeline);
    if (!path.known()) continue;
    ++known;
    EXPECT_EQ(std::accumulate(path.part_ns.begin(), path.part_ns.end(), int64_t{0}),
              path.span_ns());
    EXPECT_EQ(std::accumulate(path.class_ns.begin(), path.class_ns.end(), int64_t{0}),
              path.part_ns[static_cast<size_t>(PathPart::kCompute)]);
    for (const int64_t ns : path.part_ns) EXPECT_GE(ns, 0);
    for (const WhatIf& one : path.what_if) {
      EXPECT_LE(one.span_ns, path.span_ns()) << what_if_name(one);
      EXPECT_EQ(one.span_ns < 0, !one.unknown.empty()) << what_if_name(one);
    }
    EXPECT_FALSE(path.inferred.empty());
  }
  EXPECT_GE(known, 20u);
}

// What a loader that costs nothing would make of the starved run, against the usual step of the
// same job with four loader processes, which hardly waits for data.
TEST_F(PathTraces, AnInstantLoaderPredictsTheRunWithLoaderProcesses) {
  const auto facts = [](const char* workers) {
    return measure_rank(read_kineto(shared_data() + "/traces/public/kineto__resnet50_num_workers_" +
                                    workers + ".json.gz"));
  };
  const RankFacts starved_run = facts("0"), fed = facts("4");
  const PathFacts& starved = starved_run.critical_path;
  std::vector<int64_t> steps;
  for (const StepFacts& step : fed.steps) steps.push_back(step.duration_ns);
  ASSERT_NE(starved.find(Change::kInstantData), nullptr);
  const auto predicted =
      static_cast<double>(starved.per_step(starved.find(Change::kInstantData)->span_ns));
  const auto measured = static_cast<double>(median(steps));
  EXPECT_NEAR(predicted / measured, 1, 0.1) << predicted << " " << measured;
}

}  // namespace
}  // namespace vitrine

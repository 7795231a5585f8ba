// Device time of real PyTorch traces against exact totals that another program computed
// (integer nanoseconds, interval unions).
#include <gtest/gtest.h>

#include "analysis/intervals.h"
#include "core/json.h"
#include "readers/kineto.h"
#include "support/shared_data.h"

namespace vitrine {
namespace {

struct DeviceTime {
  IntervalSet compute, communication, copy;
  int64_t compute_count = 0, communication_count = 0, copy_count = 0;
  std::vector<int64_t> steps;
};

DeviceTime device_time(const RankTimeline& timeline) {
  DeviceTime out;
  std::vector<Interval> compute, communication, copy;
  const Spans& spans = timeline.spans;
  for (size_t i = 0; i < spans.size(); ++i) {
    const Interval interval{spans.start_ns[i], spans.start_ns[i] + spans.duration_ns[i]};
    if (spans.kind[i] == SpanKind::kStep) out.steps.push_back(spans.duration_ns[i]);
    if (!timeline.lanes[static_cast<size_t>(spans.lane[i])].device) continue;
    if (spans.kind[i] == SpanKind::kKernel) compute.push_back(interval);
    if (is_communication(spans.kind[i])) communication.push_back(interval);
    if (spans.kind[i] == SpanKind::kCopy) copy.push_back(interval);
  }
  out.compute_count = static_cast<int64_t>(compute.size());
  out.communication_count = static_cast<int64_t>(communication.size());
  out.copy_count = static_cast<int64_t>(copy.size());
  out.compute = IntervalSet(std::move(compute));
  out.communication = IntervalSet(std::move(communication));
  out.copy = IntervalSet(std::move(copy));
  return out;
}

void expect_totals(const std::string& path, const Json& truth) {
  SCOPED_TRACE(path);
  const DeviceTime time = device_time(read_kineto(path));
  EXPECT_EQ(time.compute_count, truth["n"]["compute"].get<int64_t>());
  EXPECT_EQ(time.communication_count, truth["n"]["comm"].get<int64_t>());
  EXPECT_EQ(time.copy_count,
            truth["n"]["memcpy"].get<int64_t>() + truth["n"]["memset"].get<int64_t>());
  EXPECT_EQ(time.compute.length(), truth["compute_ns"].get<int64_t>());
  EXPECT_EQ(time.communication.length(), truth["union_ns"]["comm"].get<int64_t>());
  EXPECT_EQ(subtract(time.communication, time.compute).length(),
            truth["exposed_comm_ns"].get<int64_t>());
  const IntervalSet work = unite(time.compute, time.communication);
  EXPECT_EQ(subtract(time.copy, work).length(), truth["exposed_mem_ns"].get<int64_t>());
  EXPECT_EQ(unite(work, time.copy).length(), truth["busy_ns"].get<int64_t>());
  std::vector<int64_t> steps;
  for (const Json& step : truth["steps"]) steps.push_back(step[1].get<int64_t>());
  EXPECT_EQ(time.steps, steps);
}

class KinetoGolden : public testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(KinetoGolden, DeviceTotalsAreExact) {
  const std::string data = shared_data();
  if (data.empty()) GTEST_SKIP() << "no reference traces: set VITRINE_SHARED_DATA";
  const auto [golden, folder] = GetParam();
  const Json truth = read_json_file(data + "/golden/" + golden);
  size_t compared = 0;
  for (const auto& [name, totals] : truth.items()) {
    const std::string path = data + "/traces/" + folder + "/" + name;
    if (!std::filesystem::exists(path)) continue;  // inside an archive
    expect_totals(path, totals);
    ++compared;
  }
  EXPECT_GE(compared, 15u);
}

INSTANTIATE_TEST_SUITE_P(Traces,
                         KinetoGolden,
                         testing::Values(std::pair("h200.json", "h200"),
                                         std::pair("public.json", "public")),
                         [](const auto& info) { return std::string(info.param.second); });

TEST(KinetoReal, PipelineSendsAreKnownByTheirCalls) {
  const std::string data = shared_data();
  if (data.empty()) GTEST_SKIP() << "no reference traces: set VITRINE_SHARED_DATA";
  const RankTimeline t = read_kineto(data + "/traces/h200/pipeline_1f1b_2mb/rank0.json.gz");
  std::map<std::string, int> names;
  for (size_t i = 0; i < t.spans.size(); ++i) {
    if (!is_communication(t.spans.kind[i]) || t.spans.collective[i] < 0) continue;
    const Collective& c = t.collectives[static_cast<size_t>(t.spans.collective[i])];
    if (t.spans.kind[i] == SpanKind::kSend) {
      EXPECT_EQ(c.peer, 1);
      EXPECT_EQ(c.sent_bytes, 2 * 3145728);
    }
    ++names[t.strings[c.name]];
  }
  // Two micro-batches in each of three steps: the first activation goes alone, the second with the
  // gradient that comes back in the same batch.
  EXPECT_GT(names["send"], 0);
  EXPECT_GT(names["send_receive"] + names["receive"], 0);
}

}  // namespace
}  // namespace vitrine

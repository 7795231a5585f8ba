// Device time of real PyTorch traces against exact totals that another program computed
// (integer nanoseconds, interval unions).
#include <gtest/gtest.h>
#include <zlib.h>

#include <cstring>
#include <filesystem>
#include <map>

#include "analysis/intervals.h"
#include "core/json.h"
#include "readers/kineto.h"
#include "support/shared_data.h"

namespace vitrine {
namespace {

struct DeviceTime {
  IntervalSet compute, communication, copy;
  int64_t compute_count = 0, communication_count = 0, copy_count = 0;
  int64_t first_ns = INT64_MAX, last_ns = INT64_MIN;  // of all device work
  std::vector<std::pair<std::string, int64_t>> steps;
};

DeviceTime device_time(const RankTimeline& timeline) {
  DeviceTime out;
  std::vector<Interval> compute, communication, copy;
  const Spans& spans = timeline.spans;
  for (size_t i = 0; i < spans.size(); ++i) {
    const Interval interval{spans.start_ns[i], spans.start_ns[i] + spans.duration_ns[i]};
    if (spans.kind[i] == SpanKind::kStep) {
      out.steps.emplace_back(timeline.strings[spans.name[i]], spans.duration_ns[i]);
    }
    if (!timeline.lanes[static_cast<size_t>(spans.lane[i])].device) continue;
    std::vector<Interval>* kind = spans.kind[i] == SpanKind::kKernel ? &compute
                                  : spans.kind[i] == SpanKind::kCopy ? &copy
                                  : is_communication(spans.kind[i])  ? &communication
                                                                     : nullptr;
    if (kind == nullptr) continue;
    kind->push_back(interval);
    if (interval.begin < interval.end) {
      out.first_ns = std::min(out.first_ns, interval.begin);
      out.last_ns = std::max(out.last_ns, interval.end);
    }
  }
  out.compute_count = static_cast<int64_t>(compute.size());
  out.communication_count = static_cast<int64_t>(communication.size());
  out.copy_count = static_cast<int64_t>(copy.size());
  out.compute = IntervalSet(std::move(compute));
  out.communication = IntervalSet(std::move(communication));
  out.copy = IntervalSet(std::move(copy));
  return out;
}

void expect_totals(const RankTimeline& timeline, const Json& truth) {
  const DeviceTime time = device_time(timeline);
  const auto expect = [&truth](const char* key, int64_t found) {
    EXPECT_EQ(found, truth[key].get<int64_t>()) << key;
  };
  EXPECT_EQ(time.compute_count, truth["n"]["compute"].get<int64_t>());
  EXPECT_EQ(time.communication_count, truth["n"]["comm"].get<int64_t>());
  EXPECT_EQ(time.copy_count,
            truth["n"]["memcpy"].get<int64_t>() + truth["n"]["memset"].get<int64_t>());
  expect("compute_ns", time.compute.length());
  EXPECT_EQ(time.communication.length(), truth["union_ns"]["comm"].get<int64_t>());
  expect("exposed_comm_ns", subtract(time.communication, time.compute).length());
  expect("overlap_comp_comm_ns", intersect(time.communication, time.compute).length());
  const IntervalSet work = unite(time.compute, time.communication);
  expect("exposed_mem_ns", subtract(time.copy, work).length());
  const int64_t busy = unite(work, time.copy).length();
  expect("busy_ns", busy);
  expect("span_ns", time.last_ns - time.first_ns);
  expect("idle_ns", time.last_ns - time.first_ns - busy);
  std::vector<std::pair<std::string, int64_t>> steps;
  for (const Json& step : truth["steps"]) {
    steps.emplace_back(step[0].get<std::string>(), step[1].get<int64_t>());
  }
  EXPECT_EQ(time.steps, steps);
}

// The texts of a .tar.gz by the last part of their names (POSIX ustar: a header of 512 bytes, the
// size in octal at byte 124, contents padded to whole blocks).
std::map<std::string, std::string> unpacked(const std::string& path) {
  std::map<std::string, std::string> out;
  gzFile file = gzopen(path.c_str(), "rb");
  char header[512];
  while (gzread(file, header, sizeof header) == sizeof header && header[0] != '\0') {
    const std::string name(header, strnlen(header, 100));
    std::string text(std::stoul(std::string(header + 124, 11), nullptr, 8), '\0');
    gzread(file, text.data(), static_cast<unsigned>(text.size()));
    gzseek(file, static_cast<z_off_t>((512 - text.size() % 512) % 512), SEEK_CUR);
    if (!text.empty()) out[name.substr(name.rfind('/') + 1)] = std::move(text);
  }
  gzclose(file);
  return out;
}

class KinetoGolden : public testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(KinetoGolden, EveryFileIsExact) {
  const std::string data = shared_data();
  if (data.empty()) GTEST_SKIP() << "no reference traces: set VITRINE_SHARED_DATA";
  const auto [golden, folder] = GetParam();
  const Json truth = read_json_file(data + "/golden/" + golden);
  std::map<std::string, std::string> archive;
  for (const auto& [name, totals] : truth.items()) {
    SCOPED_TRACE(name);
    const std::string base = data + "/traces/" + folder + "/";
    if (std::filesystem::exists(base + name)) {
      expect_totals(read_kineto(base + name), totals);
      continue;
    }
    if (archive.empty()) archive = unpacked(base + name.substr(0, name.find('/')) + ".tar.gz");
    const std::string file = name.substr(name.rfind('/') + 1);
    ASSERT_TRUE(archive.contains(file));
    expect_totals(read_kineto_text(archive[file], file), totals);
  }
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

// Process groups of a large layout, and how many kernels of a graph replay share a launch.
TEST(KinetoReal, DeepInputsAreReadWithWhatTheyHave) {
  const std::string data = shared_data();
  if (data.empty()) GTEST_SKIP() << "no reference traces: set VITRINE_SHARED_DATA";
  const std::string folder = data + "/traces/public/";
  const RankTimeline b200 = read_kineto(folder + "tracelens__b200__eager_trace.json.gz");
  EXPECT_EQ(b200.groups.size(), 15u);  // of 71, those that the trace lists
  EXPECT_EQ(b200.groups[0].ranks.size(), 8u);
  EXPECT_EQ(b200.world_size, 8);
  const RankTimeline replay =
      read_kineto(folder + "tracelens__inference__vllm_decode_full__graph_execution.json.gz");
  std::map<int64_t, int> kernels;
  for (size_t i = 0; i < replay.spans.size(); ++i) {
    if (replay.spans.kind[i] == SpanKind::kKernel) ++kernels[replay.spans.correlation[i]];
  }
  int most = 0;
  for (const auto& [correlation, count] : kernels) most = std::max(most, count);
  EXPECT_GT(most, 100);
  const RankTimeline large = read_kineto(
      folder + "hta__large_integer_trace__rank-70.Mar_25_20_48_12.2861.pt.trace.json.gz");
  EXPECT_EQ(large.rank, 70);
  const RankTimeline no_rank =
      read_kineto(folder + "hta__rank_unavailable__rank_not_found.json.gz");
  EXPECT_EQ(no_rank.info.at("rank.known"), "no");
  EXPECT_FALSE(no_rank.warnings.empty());
  EXPECT_GT(no_rank.spans.size(), 2000u);
  const RankTimeline memory =
      read_kineto(folder + "tracelens__h100__Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz");
  EXPECT_EQ(memory.allocations.size(), 2450u);
}

}  // namespace
}  // namespace vitrine

// Device records made by hand become the right lanes, kinds and owners, and survive a trace file.
#include "gpu/gpu_records.h"

#include <gtest/gtest.h>

#include <array>
#include <filesystem>

#include "readers/kineto.h"
#include "support/scratch.h"
#include "timeline/chrome_writer.h"
#include "timeline/recorder.h"

namespace vitrine {
namespace {

using Kind = GpuRecord::Kind;

GpuRecord record(Kind kind,
                 const std::string& name,
                 int64_t start,
                 int64_t end,
                 uint32_t correlation,
                 uint32_t stream = 0) {
  GpuRecord r;
  r.kind = kind;
  r.name = name;
  r.start_ns = start;
  r.end_ns = end;
  r.correlation = correlation;
  r.stream = stream;
  r.thread = 4242;
  return r;
}

// A step with one operation on lane "compute" and one gather on lane "gather", 10 us apart.
class GpuRecordsTest : public testing::Test {
 protected:
  void SetUp() override {
    recorder_.start();
    const int32_t compute = recorder_.lane("compute"), gather = recorder_.lane("gather");
    const StringId body = recorder_.intern("body.3");
    recorder_.begin_step(7);
    base_ = now_ns();
    SpanRecord op;
    op.start_ns = base_ + 1000;
    op.duration_ns = 5000;
    op.name = recorder_.intern("rms_norm");
    op.kind = SpanKind::kOperation;
    op.lane = compute;
    op.step = 7;
    recorder_.span(op);
    SpanRecord call = op;
    call.start_ns = base_ + 11000;
    call.name = recorder_.intern("gather body.3");
    call.kind = SpanKind::kGather;
    call.lane = gather;
    CollectiveRecord collective;
    collective.name = recorder_.intern("all_gather");
    collective.dtype = recorder_.intern("bf16");
    collective.group = recorder_.group("gather", {0, 1});
    collective.sequence = 5;
    collective.in_elements = 100;
    collective.out_elements = 200;
    collective.sent_bytes = 200;
    recorder_.collective(call, collective);
    while (now_ns() < base_ + 60000) {
    }
    recorder_.end_step();
    recorder_.stop();
    works_ = {{op.name, body, compute, 7, 2}, {call.name, body, gather, 7, -1}};

    add(record(Kind::kCall, "cudaLaunchKernel", 2000, 3000, 101), 1);
    add(record(Kind::kCall, "cuLaunchKernel", 2100, 2900, 101), 0);  // inside the runtime's call
    gpu_.records.back().driver = true;
    add(record(Kind::kKernel, "rms_norm_kernel", 20000, 30000, 101, 7), 1);
    add(record(Kind::kCall, "cuLaunchKernelEx", 12000, 13000, 102), 2);
    gpu_.records.back().driver = true;
    add(record(Kind::kKernel, "ncclDevKernel_AllGather_RING_LL", 21000, 45000, 102, 13), 2);
    add(record(Kind::kCall, "cudaMemcpyAsync", 14000, 15000, 103), 0);
    add(record(Kind::kCopy, "Memcpy HtoD (Pinned -> Device)", 30000, 31000, 103, 7), 0);
    gpu_.records.back().bytes = 4096;
    add(record(Kind::kCall, "cudaGetLastError", 16000, 16100, 104), 0);
    add(record(Kind::kCall, "cuMemAlloc", 16200, 16300, 105), 0);
    gpu_.records.back().driver = true;
    add(record(Kind::kCall, "cudaStreamSynchronize", 17000, 46000, 106), 0);
    add(record(Kind::kSync, "wait for stream 7", 17100, 45900, 106, 7), 0);
    gpu_.dropped = 3;
  }

  void add(GpuRecord r, uint64_t work) {
    r.start_ns += base_;
    r.end_ns += base_;
    if (work > 0) gpu_.work_of[r.correlation] = work;
    gpu_.records.push_back(r);
  }

  RankTimeline merged() {
    RankTimeline timeline = recorder_.take();
    add_gpu_records(gpu_, works_, timeline);
    return timeline;
  }

  static size_t find(const RankTimeline& t, const std::string& name) {
    for (size_t i = 0; i < t.spans.size(); ++i) {
      if (t.strings[t.spans.name[i]] == name) return i;
    }
    ADD_FAILURE() << "no span " << name;
    return 0;
  }
  static bool has(const RankTimeline& t, const std::string& name) {
    for (const StringId id : t.spans.name) {
      if (t.strings[id] == name) return true;
    }
    return false;
  }
  static const Lane& lane_of(const RankTimeline& t, size_t span) {
    return t.lanes[static_cast<size_t>(t.spans.lane[span])];
  }

  void expect_whole(const RankTimeline& t) {
    const size_t kernel = find(t, "rms_norm_kernel");
    EXPECT_EQ(t.spans.kind[kernel], SpanKind::kKernel);
    EXPECT_EQ(lane_of(t, kernel).name, "stream 7");
    EXPECT_TRUE(lane_of(t, kernel).device);
    EXPECT_EQ(t.spans.step[kernel], 7);
    EXPECT_EQ(t.spans.micro_batch[kernel], 2);
    EXPECT_EQ(t.strings[t.spans.block[kernel]], "body.3");
    EXPECT_EQ(t.spans.duration_ns[kernel], 10000);
    const size_t launch = find(t, "cudaLaunchKernel");
    EXPECT_EQ(t.spans.correlation[launch], t.spans.correlation[kernel]);
    EXPECT_EQ(t.spans.kind[launch], SpanKind::kRuntime);
    EXPECT_EQ(lane_of(t, launch).name, "compute");
    EXPECT_FALSE(lane_of(t, launch).device);

    const size_t gather = find(t, "ncclDevKernel_AllGather_RING_LL");
    EXPECT_EQ(t.spans.kind[gather], SpanKind::kGather);
    ASSERT_GE(t.spans.collective[gather], 0);
    const Collective& c = t.collectives[static_cast<size_t>(t.spans.collective[gather])];
    EXPECT_EQ(t.strings[c.name], "all_gather");
    EXPECT_EQ(c.sequence, 5);
    EXPECT_EQ(c.out_elements, 200);

    const size_t copy = find(t, "Memcpy HtoD (Pinned -> Device)");
    EXPECT_EQ(t.spans.kind[copy], SpanKind::kCopy);
    EXPECT_EQ(t.spans.bytes[copy], 4096);
    EXPECT_EQ(t.spans.step[copy], 7);  // by its launch
    EXPECT_EQ(lane_of(t, find(t, "cudaMemcpyAsync")).name, "thread 4242");
    EXPECT_EQ(t.spans.kind[find(t, "wait for stream 7")], SpanKind::kSync);
    EXPECT_EQ(lane_of(t, find(t, "wait for stream 7")).name, "thread 4242");
  }

  Recorder recorder_{0, 2, {}};
  int64_t base_ = 0;
  GpuRecords gpu_;
  std::vector<GpuWork> works_;
};

TEST_F(GpuRecordsTest, KernelsGetTheLaneOfTheirStreamAndTheNamesOfTheirWork) {
  const RankTimeline t = merged();
  expect_whole(t);
  for (size_t i = 1; i < t.spans.size(); ++i) {
    EXPECT_LE(t.spans.start_ns[i - 1], t.spans.start_ns[i]);
  }
  EXPECT_EQ(t.info.at("gpu_trace.dropped"), "3");
}

TEST_F(GpuRecordsTest, QueriesAndDriverCallsThatLaunchNothingAreLeftOut) {
  const RankTimeline t = merged();
  EXPECT_FALSE(has(t, "cudaGetLastError"));
  EXPECT_FALSE(has(t, "cuMemAlloc"));
  EXPECT_FALSE(has(t, "cuLaunchKernel"));
  EXPECT_TRUE(has(t, "cuLaunchKernelEx"));
}

TEST_F(GpuRecordsTest, LanesThatIssueAreHostLanesNow) {
  const RankTimeline t = merged();
  for (const Lane& lane : t.lanes) EXPECT_EQ(lane.device, lane.name.starts_with("stream "));
}

TEST_F(GpuRecordsTest, ATraceFileKeepsAllOfIt) {
  const ScratchFolder folder;
  const std::string path = folder / "rank0.json";
  write_chrome_trace(merged(), path);
  expect_whole(read_kineto(path));
}

TEST_F(GpuRecordsTest, AnIdThatNoWorkHasIsNoOwner) {
  gpu_.work_of[101] = 99;
  const RankTimeline t = merged();
  const size_t kernel = find(t, "rms_norm_kernel");
  EXPECT_EQ(t.spans.block[kernel], kNoString);
  EXPECT_EQ(t.spans.step[kernel], 7);
}

// A gather by copy engines: two copies between GPUs for one call, and one within the GPU beside
// them.
TEST_F(GpuRecordsTest, CopiesBetweenGpusAreTheCollectiveThatIssuedThem) {
  gpu_.records.clear();
  gpu_.work_of.clear();
  const auto copy = [&](const char* name, int64_t start, int64_t end, uint32_t id, int64_t bytes) {
    add(record(Kind::kCall, "cudaMemcpyBatchAsync", 12000 + id, 12100 + id, id), 2);
    add(record(Kind::kCopy, name, start, end, id, 13), 2);
    gpu_.records.back().bytes = bytes;
  };
  copy("Memcpy PtoP (Device -> Device)", 46000, 48000, 201, 150);
  copy("Memcpy PtoP (Device -> Device)", 48000, 49000, 202, 50);
  copy("Memcpy DtoD (Device -> Device)", 49000, 50000, 203, 200);
  const auto check = [](const RankTimeline& t) {
    int copies = 0;
    std::vector<std::array<int64_t, 3>> gathers;
    for (size_t i = 0; i < t.spans.size(); ++i) {
      if (!t.lanes[static_cast<size_t>(t.spans.lane[i])].device) continue;
      copies += t.spans.kind[i] == SpanKind::kCopy;
      if (t.spans.kind[i] != SpanKind::kGather) continue;
      ASSERT_GE(t.spans.collective[i], 0);
      const Collective& c = t.collectives[static_cast<size_t>(t.spans.collective[i])];
      EXPECT_EQ(t.strings[c.name], "all_gather");
      gathers.push_back({c.sent_bytes, c.in_elements, c.out_elements});
    }
    EXPECT_EQ(copies, 1);
    // Of 200 bytes sent, 100 elements in and 200 out.
    EXPECT_EQ(gathers, (std::vector<std::array<int64_t, 3>>{{150, 75, 150}, {50, 25, 50}}));
  };
  RankTimeline timeline = merged();
  check(timeline);
  const ScratchFolder folder;
  const std::string path = folder / "copies.json";
  write_chrome_trace(timeline, path);
  check(read_kineto(path));
}

}  // namespace
}  // namespace vitrine

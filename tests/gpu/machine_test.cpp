// On a machine with a GPU: the probe's numbers can be, NVML and CUPTI deliver.
#include <gtest/gtest.h>

#include <cmath>

#include "core/device.h"
#include "gpu/cupti_recorder.h"
#include "gpu/gpu.h"
#include "gpu/nvml.h"
#include "gpu/probe.h"
#include "timeline/recorder.h"

namespace vitrine {
namespace {

class OnGpu : public testing::Test {
 protected:
  void SetUp() override {
    const std::string why = why_no_gpu();
    if (!why.empty()) GTEST_SKIP() << why;
  }
};

TEST_F(OnGpu, TheProbeFindsProductsThatAreRightAndRates) {
  const ProbeReport report = probe_gpus();
  ASSERT_FALSE(report.gpus.empty());
  EXPECT_FALSE(report.cublaslt.empty());
  for (const GpuProbe& gpu : report.gpus) {
    EXPECT_EQ(gpu.failure, "");
    EXPECT_GT(gpu.copy_bytes_per_s, 1e11);
    EXPECT_GT(gpu.upload_bytes_per_s, 1e9);
    for (const ProductProbe& product : gpu.products) {
      if (product.refused.empty()) {
        EXPECT_TRUE(product.right()) << product.dtype << " " << product.error;
      }
    }
    EXPECT_NE(choose_precision(gpu), "");
  }
  EXPECT_EQ(report.peers.size(), report.gpus.size() * (report.gpus.size() - 1));
}

TEST_F(OnGpu, NvmlSeesMemoryAndPower) {
  std::string why;
  const auto nvml = Nvml::open(why);
  if (!nvml) GTEST_SKIP() << why;
  nvml->sample();
  const std::vector<GpuSample> samples = nvml->sample();
  ASSERT_FALSE(samples.empty());
  EXPECT_FALSE(samples[0].name.empty());
  EXPECT_GT(samples[0].total_bytes, 1e9);
  EXPECT_LE(samples[0].used_bytes, samples[0].total_bytes);
  if (!std::isnan(samples[0].nvlink_sent_bytes_per_s)) {
    EXPECT_GE(samples[0].nvlink_sent_bytes_per_s, 0);
  }
}

TEST_F(OnGpu, ATraceNamesTheWorkOfEachKernelInTheRecordersTime) {
  const auto device = make_gpu_device(0);
  device->enter_lane(0);
  Recorder recorder(0, 1, {});
  const int32_t lane = recorder.lane("compute");
  recorder.start();
  std::string why;
  const auto trace = GpuTrace::start(why);
  if (!trace) GTEST_SKIP() << why;
  std::string second;
  EXPECT_EQ(GpuTrace::start(second), nullptr);
  EXPECT_NE(second, "");
  constexpr int64_t kCount = 1 << 20;
  auto* data = static_cast<float*>(device->allocate(kCount * 4));
  auto* half = device->allocate(kCount * 2);
  const int64_t before = now_ns();
  recorder.begin_step(3);
  device->zero(data, kCount * 4);
  const StringId block = recorder.intern("body.1");
  {
    const GpuWorkScope scope(trace.get(), {recorder.intern("convert"), block, lane, 3, 1});
    device->convert(DType::kBF16, half, DType::kF32, data, kCount);
  }
  device->synchronize();
  recorder.end_step();
  recorder.stop();
  const int64_t after = now_ns();
  trace->stop();
  RankTimeline t = recorder.take();
  trace->add_to(t);
  int kernels = 0, sets = 0, calls = 0;
  for (size_t i = 0; i < t.spans.size(); ++i) {
    const SpanKind kind = t.spans.kind[i];
    calls += kind == SpanKind::kRuntime;
    sets += kind == SpanKind::kCopy;
    if (kind == SpanKind::kKernel) {
      ++kernels;
      EXPECT_EQ(t.spans.block[i], block);
      EXPECT_EQ(t.spans.step[i], 3);
      EXPECT_EQ(t.spans.micro_batch[i], 1);
      // The GPU's clock is fitted to the host's: a little slack.
      EXPECT_GT(t.spans.start_ns[i], before - 200000);
      EXPECT_LT(t.spans.start_ns[i] + t.spans.duration_ns[i], after + 200000);
    }
  }
  EXPECT_EQ(kernels, 1);
  EXPECT_EQ(sets, 1);
  EXPECT_GT(calls, 0);
  device->release(data, kCount * 4);
  device->release(half, kCount * 2);
}

}  // namespace
}  // namespace vitrine

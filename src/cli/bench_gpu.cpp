// vitrine bench ops --device gpu
#include <cstdio>

#include "cli/benches.h"
#include "core/json.h"
#include "gpu/gpu.h"
#include "ops/gpu/bench_gpu_ops.h"
#include "optim/gpu/bench_gpu_update.h"

namespace vitrine {
namespace {

// Products of matrices are limited by arithmetic, so for them the share of bandwidth says nothing.
void print_row(const GpuOpTiming& t, double copy_gbps) {
  std::printf("%-22s %-9s %-42s %10.1f %8.0f",
              t.op.c_str(),
              t.backward ? "backward" : "forward",
              t.shapes.c_str(),
              t.ns * 1e-3,
              t.gbps);
  if (t.tflops > 0) {
    std::printf("       -        - %9.1f\n", t.tflops);
  } else {
    std::printf(
        " %6.1f%% %7.1f%%         -\n", 100 * t.gbps / copy_gbps, 100 * t.gbps / t.copy_gbps);
  }
}

Json to_json(const GpuOpTiming& t, double copy_gbps) {
  return {{"op", t.op},
          {"shapes", t.shapes},
          {"backward", t.backward},
          {"ns", t.ns},
          {"gbps", t.gbps},
          {"copy_share", t.gbps / copy_gbps},
          {"copy_of_size_share", t.gbps / t.copy_gbps},
          {"tflops", t.tflops}};
}

}  // namespace

int bench_gpu(const std::string& only, bool json) {
  GpuBenchOptions options;
  options.only = only;
  const double copy_gbps = bench_gpu_copy() * 1e-9;
  std::vector<GpuOpTiming> timings = bench_gpu_ops(options);
  if (only.empty()) {
    for (const GpuUpdateTiming& t : bench_gpu_update()) {
      const std::string shape = "[" + std::to_string(t.elements) + "]";
      timings.push_back({t.pass, shape, false, t.ns, t.gbps, 0, copy_gbps});
    }
  }
  const std::string device = gpu_devices().front().name;
  Json rows = Json::array();
  if (!json) {
    std::printf(
        "%s: copies move %.0f GB/s (read plus written); \"of size\": of a copy that moves as many "
        "bytes; bf16\n",
        device.c_str(),
        copy_gbps);
    std::printf("%-22s %-9s %-42s %10s %8s %7s %8s %9s\n",
                "operation",
                "direction",
                "shapes",
                "us",
                "GB/s",
                "of copy",
                "of size",
                "TFLOP/s");
  }
  for (const GpuOpTiming& t : timings) {
    rows.push_back(to_json(t, copy_gbps));
    if (!json) print_row(t, copy_gbps);
  }
  if (json) {
    std::printf("%s\n",
                Json{{"device", device}, {"copy_gbps", copy_gbps}, {"rows", rows}}.dump().c_str());
  }
  return 0;
}

}  // namespace vitrine

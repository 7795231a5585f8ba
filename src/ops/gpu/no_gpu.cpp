// A build without GPU code.
#include "core/error.h"
#include "gpu/gpu.h"
#include "ops/gpu/bench_gpu_ops.h"
#include "ops/gpu/sustained_ops.h"
#include "ops/op.h"

namespace vitrine {

Backend& gpu_backend() { throw DeviceError(why_no_gpu()); }

std::vector<GpuOpTiming> bench_gpu_ops(const GpuBenchOptions&) { throw DeviceError(why_no_gpu()); }
double bench_gpu_copy() { throw DeviceError(why_no_gpu()); }
std::vector<SustainedProduct> sustained_products(int,
                                                 std::span<const ProductShape>,
                                                 double,
                                                 double) {
  throw DeviceError(why_no_gpu());
}
double gpu_issue_ns(int) { throw DeviceError(why_no_gpu()); }

}  // namespace vitrine

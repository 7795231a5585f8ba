// Loops that keep a GPU busy.
#include "ops/gpu/sustained_ops.h"

#include <algorithm>
#include <functional>
#include <memory>

#include "core/clock.h"
#include "core/device.h"
#include "core/error.h"
#include "gpu/gpu.h"
#include "ops/fp8.h"
#include "ops/gpu/bench_operands.h"
#include "ops/gpu/linear_fp8.h"

namespace vitrine {
namespace {

GpuOpCase case_of(const ProductShape& shape) {
  Attrs attrs;
  if (shape.fp8) attrs.set("fp8", static_cast<double>(Fp8Linears::kAllKept));
  return {"linear", attrs, {{shape.rows, shape.in}, {shape.out, shape.in}}};
}

double bytes_of(const ProductShape& s) {
  // Operands and their gradients, and room for 8-bit copies.
  return 6.0 * (static_cast<double>(s.rows) * static_cast<double>(s.in + s.out) +
                static_cast<double>(s.in) * static_cast<double>(s.out));
}

class Loop {
 public:
  explicit Loop(Device& device) : device_(device) {}

  // Nanoseconds of a call, of the second half of `seconds` of calls in batches.
  double typical_ns(double seconds, const std::function<void()>& call) {
    call();  // chooses kernels
    call();
    device_.synchronize();
    const int64_t once = time(call, 2) / 2;
    const int calls =
        static_cast<int>(std::clamp<int64_t>(kBatchNs / std::max<int64_t>(once, 1), 1, kMostCalls));
    const int64_t end = now_ns() + static_cast<int64_t>(seconds * 1e9);
    const int64_t counted = end - static_cast<int64_t>(seconds * 0.5e9);  // from here on
    int64_t total = 0, count = 0;
    for (bool counts = false, last = false; !last;) {
      const int64_t batch = time(call, calls), now = now_ns();
      last = now >= end && counts;
      if (counts) {
        total += batch;
        count += calls;
      }
      counts = now >= counted;
    }
    return static_cast<double>(total) / static_cast<double>(count);
  }

 private:
  // Short enough to stop in time, long enough that the wait between two says nothing.
  static constexpr int64_t kBatchNs = 20'000'000;
  static constexpr int64_t kMostCalls = 500;

  int64_t time(const std::function<void()>& call, int calls) {
    const auto start = device_.timed_point();
    for (int i = 0; i < calls; ++i) call();
    const auto end = device_.timed_point();
    device_.synchronize();
    return device_.elapsed_ns(start, end);
  }

  Device& device_;
};

}  // namespace

std::vector<SustainedProduct> sustained_products(int index,
                                                 std::span<const ProductShape> shapes,
                                                 double seconds,
                                                 double room_bytes) {
  const GpuDescription description = gpu_devices().at(static_cast<size_t>(index));
  const bool fp8 = 10 * description.major + description.minor >= gpu::kFp8Architecture;
  const auto device = make_gpu_device(index);
  device->enter_lane(0);
  const BenchPattern pattern(*device);
  Loop loop(*device);
  std::vector<SustainedProduct> results;
  for (const ProductShape& shape : shapes) {
    if (bytes_of(shape) > room_bytes || (shape.fp8 && !fp8)) continue;
    const GpuOpCase op_case = case_of(shape);
    BenchOperands operands(*device, pattern, op_case);
    const auto forward = [&] { operands.run(false); };
    if (results.empty()) loop.typical_ns(1, forward);
    SustainedProduct result{shape};
    result.forward_ns = loop.typical_ns(seconds, forward);
    operands.run(false);
    result.backward_ns = loop.typical_ns(seconds, [&] { operands.run(true); });
    results.push_back(result);
  }
  device->synchronize();
  return results;
}

double gpu_issue_ns(int gpu) {
  constexpr int kCalls = 400, kRounds = 7;
  const auto device = make_gpu_device(gpu);
  device->enter_lane(0);
  const BenchPattern pattern(*device);
  const GpuOpCase op_case{"add", {}, {{64, 64}, {64, 64}}};
  BenchOperands operands(*device, pattern, op_case);
  std::vector<double> rounds;
  for (int round = 0; round < kRounds; ++round) {
    device->synchronize();
    const int64_t start = now_ns();
    for (int i = 0; i < kCalls; ++i) operands.run(false);
    rounds.push_back(static_cast<double>(now_ns() - start) / kCalls);
  }
  device->synchronize();
  std::sort(rounds.begin(), rounds.end());
  return rounds[rounds.size() / 2];
}

}  // namespace vitrine

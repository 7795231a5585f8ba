// The micro benchmark of the GPU rows.
#include "ops/gpu/bench_gpu_ops.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "core/error.h"
#include "core/format.h"
#include "gpu/gpu.h"
#include "gpu/timing.h"
#include "ops/gpu/bench_gpu_cases.h"
#include "ops/gpu/bench_operands.h"

namespace vitrine {
namespace {

// Bandwidths of copies by size, each measured once.
class Copies {
 public:
  explicit Copies(bool wanted) : wanted_(wanted) {}
  double gbps(double bytes) {
    if (!wanted_) return 0;
    const double step = bytes < (1 << 24) ? 1 << 16 : 1 << 20;
    const auto size =
        static_cast<size_t>(std::clamp(std::round(bytes / step) * step, step, 0x1p31));
    double& known = known_[size];
    if (known == 0) known = gpu::copy_bandwidth(size) * 1e-9;
    return known;
  }

 private:
  bool wanted_;
  std::map<size_t, double> known_;
};

// The two products of linear's backward and its bias gradient, each alone.
void time_products(const GpuOpCase& c,
                   const std::vector<TensorType>& types,
                   const std::string& shapes,
                   int samples,
                   std::vector<std::unique_ptr<BenchOperands>>& operands,
                   Copies& copies,
                   std::vector<GpuOpTiming>& timings) {
  const char* names[] = {"linear dx", "linear dw", "linear dbias"};
  const OpDef& op = find_op(c.op);
  const double dy_bytes = static_cast<double>(op.infer(c.attrs, types).out[0].bytes());
  for (size_t input = 0; input < types.size(); ++input) {
    const double ns = gpu::median_ns(
        static_cast<int>(operands.size()),
        samples,
        [&](int set) { operands[static_cast<size_t>(set)]->run(false); },
        [&](int set) { operands[static_cast<size_t>(set)]->run_gradient(input); });
    const bool product = input < 2;
    const double bytes =
        dy_bytes + (product ? static_cast<double>(types[0].bytes() + types[1].bytes()) : 0);
    const double flops = product ? op.forward_cost(c.attrs, types).flops : 0;
    timings.push_back(
        {names[input], shapes, true, ns, bytes / ns, flops / ns * 1e-3, copies.gbps(bytes)});
  }
}

void time_case(Device& device,
               const BenchPattern& pattern,
               const GpuOpCase& c,
               int samples,
               Copies& copies,
               std::vector<GpuOpTiming>& timings) {
  const OpDef& op = find_op(c.op);
  const auto types = BenchOperands::types_of(c);
  const int sets = gpu::sets_beyond_cache(op.forward_cost(c.attrs, types).bytes);
  std::vector<std::unique_ptr<BenchOperands>> operands;
  for (int i = 0; i < sets; ++i) {
    operands.push_back(std::make_unique<BenchOperands>(device, pattern, c));
  }
  std::vector<std::string> shapes;
  for (const Shape& shape : c.shapes) shapes.push_back(shape.str());
  if (c.attrs.has("fp8")) shapes.push_back("fp8");
  for (const bool backward : {false, true}) {
    // Backward may overwrite what forward saved, so a forward comes before each.
    const double ns = gpu::median_ns(
        sets,
        samples,
        [&](int set) { operands[static_cast<size_t>(set)]->run(false); },
        [&](int set) { operands[static_cast<size_t>(set)]->run(backward); });
    const Cost cost = (backward ? op.backward_cost : op.forward_cost)(c.attrs, types);
    timings.push_back({c.op,
                       join(shapes, " "),
                       backward,
                       ns,
                       cost.bytes / ns,
                       cost.matmul ? cost.flops / ns * 1e-3 : 0,
                       copies.gbps(cost.bytes)});
  }
  if (c.op == "linear")
    time_products(c, types, join(shapes, " "), samples, operands, copies, timings);
  device.synchronize();
}

}  // namespace

std::vector<GpuOpTiming> bench_gpu_ops(const GpuBenchOptions& options) {
  if (!options.only.empty()) find_op(options.only);
  const auto device = make_gpu_device(options.gpu);
  device->enter_lane(0);
  const BenchPattern pattern(*device);
  std::vector<GpuOpTiming> timings;
  Copies copies(!options.passes_only);
  for (const GpuOpCase& c : gpu_op_cases()) {
    if (!options.only.empty() && c.op != options.only) continue;
    if (!gpu_backend().has(c.op)) continue;
    if (options.passes_only &&
        find_op(c.op).forward_cost(c.attrs, BenchOperands::types_of(c)).matmul)
      continue;
    try {
      time_case(*device, pattern, c, std::max(1, options.samples), copies, timings);
    } catch (const OutOfMemory&) {
      if (!options.passes_only) throw;
    }
  }
  device->synchronize();
  return timings;
}

double bench_gpu_copy() {
  const auto device = make_gpu_device(0);
  device->enter_lane(0);
  return gpu::copy_bandwidth();
}

}  // namespace vitrine

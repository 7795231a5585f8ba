// The micro benchmark of the CPU rows.
#include "ops/cpu/bench_ops.h"

#include <algorithm>

#include "core/clock.h"
#include "core/format.h"
#include "ops/cpu/op_operands.h"

namespace vitrine {
namespace {

Attrs attention(int heads, int head_dim, int axis, int causal) {
  return {{"heads", heads},
          {"kv_heads", heads},
          {"head_dim", head_dim},
          {"axis", axis},
          {"causal", causal}};
}

// A decoder of width 256 on 8 x 256 tokens, and a world model of width 64 on 16 x 8 x 36 tokens.
std::vector<OpCase> bench_cases() {
  const Shape x{8, 256, 256}, weight{256}, z{16, 8, 36, 64}, channel{64};
  const Attrs eps{{"eps", 1e-5}};
  return {
      {"linear", {}, {x, {256, 256}}},
      {"linear", {}, {x, {768, 256}}},
      {"linear", {}, {x, {2048, 256}}},
      {"linear", {}, {{8, 256, 768}, {256, 768}}},
      {"linear", {}, {z, {192, 64}, {192}}},
      {"linear", {}, {z, {64, 64}, channel}},
      {"attention", attention(4, 64, 1, 1), {{8, 256, 768}}},
      {"attention", attention(2, 32, 2, 0), {{16, 8, 36, 192}}},
      {"attention", attention(2, 32, 1, 1), {{16, 8, 36, 192}}},
      {"linear_cross_entropy", {{"chunk_rows", 0}}, {x, {8192, 256}, {8, 256}}, 2, 8192},
      {"linear_cross_entropy", {{"chunk_rows", 512}}, {x, {8192, 256}, {8, 256}}, 2, 8192},
      {"embedding", {}, {{8, 256}, {8192, 256}}, 0, 8192},
      {"rms_norm", eps, {x, weight}},
      {"add_rms_norm", eps, {x, x, weight}},
      {"layer_norm", eps, {z, channel, channel}},
      {"add_layer_norm", eps, {z, z, channel, channel}},
      {"rotary", {{"heads", 8}, {"head_dim", 64}, {"base", 10000}, {"axis", 1}}, {{8, 256, 768}}},
      {"qk_norm",
       {{"heads", 4}, {"kv_heads", 4}, {"head_dim", 64}, {"eps", 1e-6}},
       {{8, 256, 768}, {64}, {64}}},
      {"swiglu", {}, {{8, 256, 2048}}},
      {"gelu", {{"form", 0}}, {{16, 8, 36, 256}}},
      {"gelu", {{"form", 1}}, {{16, 8, 36, 256}}},
      {"gelu", {{"form", 2}}, {{16, 8, 36, 256}}},
      {"mse", {}, {z, z}},
      {"l1", {}, {z, z}},
      {"patchify", {{"patch", 4}}, {{16, 8, 24, 24, 3}}},
      {"unpatchify", {{"patch", 4}, {"height", 24}, {"width", 24}}, {{16, 8, 36, 48}}},
      {"add", {}, {x, x}},
      {"add_broadcast", {{"dims", 0b1100}}, {z, {36, 64}}},
      {"scale", {{"factor", 0.5}}, {x}},
      {"frame_difference", {}, {{16, 8, 36, 48}}},
      {"gated_sigmoid", {}, {{16, 8, 36, 48}, {48}, {48}}},
      {"time_slice", {{"begin", 0}, {"count", 7}}, {z}},
      {"shift_window", {}, {z, z}},
      {"prepend_token", {}, {{16, 64, 64}, channel}},
      {"take_token", {{"index", 0}}, {{16, 65, 64}}},
      {"mean_pool", {}, {{16, 64, 64}}},
  };
}

// Backward may overwrite what forward saved, so each timed backward follows an untimed forward.
double median_ns(OpOperands& operands, const Backend& backend, bool backward, int repeats) {
  std::vector<double> times;
  for (int i = -1; i < repeats; ++i) {  // the first run warms caches and makes primitives
    if (backward) operands.run(backend, false);
    const int64_t start = now_ns();
    operands.run(backend, backward);
    if (i >= 0) times.push_back(static_cast<double>(now_ns() - start));
  }
  std::nth_element(times.begin(), times.begin() + repeats / 2, times.end());
  return times[static_cast<size_t>(repeats / 2)];
}

}  // namespace

std::vector<OpTiming> bench_ops(const OpBenchOptions& options) {
  if (!options.only.empty()) find_op(options.only);
  std::vector<OpTiming> timings;
  for (const OpCase& c : bench_cases()) {
    if (!options.only.empty() && c.op != options.only) continue;
    OpOperands operands(c, options.dtype);
    std::vector<std::string> shapes;
    for (const Shape& shape : c.shapes) shapes.push_back(shape.str());
    for (const bool backward : {false, true}) {
      const Cost cost = operands.cost(backward);
      OpTiming t{c.op, join(shapes, " "), options.dtype, backward};
      t.fast_ns = median_ns(operands, cpu_backend(), backward, std::max(1, options.repeats));
      if (cost.flops <= options.reference_flops)
        t.reference_ns = median_ns(operands, reference_backend(), backward, 3);
      t.gflops = cost.flops / t.fast_ns;
      t.gbps = cost.bytes / t.fast_ns;
      timings.push_back(t);
    }
  }
  return timings;
}

}  // namespace vitrine

// linear and swiglu as one, on Hopper: swiglu in the end of the product before it (forward), and of
// the product whose backward gives its gradient. Cost and figures: wgmma_swiglu.cuh.
#include "ops/gpu/linear.h"
#include "ops/gpu/linear_fp8.h"
#include "ops/gpu/rows.h"
#include "ops/gpu/wgmma_swiglu.h"

namespace vitrine::gpu {
namespace {

// Below this a launch is not worth what tiles of 256 rows lose.
constexpr double kLeastFlops = 1e9;

bool worth_it(const SwigluProduct& p) {
  return 2.0 * static_cast<double>(p.m) * static_cast<double>(p.k) * static_cast<double>(p.f) >=
         kLeastFlops;
}

bool all_bf16(std::initializer_list<TensorView> views) {
  for (const TensorView& view : views) {
    if (!view || view.dtype != DType::kBF16) return false;
  }
  return true;
}

// gate_up = x w_gate_upᵀ, h = swiglu(gate_up)
bool forward(const OpCall& linear, const OpCall& swiglu) {
  const TensorView x = linear.in[0], w = linear.in[1], gate_up = linear.out[0], h = swiglu.out[0];
  if (fp8_linear(linear) || operand(linear.in, 2) || !all_bf16({x, w, gate_up, h})) return false;
  const SwigluProduct p{
      rows_of(x.shape), w.shape[1], w.shape[0] / 2, x.data, w.data, gate_up.data, h.data};
  if (!worth_it(p) || !wgmma_swiglu_fits(p)) return false;
  wgmma_swiglu_forward(p);
  return true;
}

// d gate_up of y = swiglu(gate_up) w_downᵀ, and the gradients of w_down and its bias.
bool backward(
    const OpCall& swiglu, Gradients swiglu_din, const OpCall& linear, Views dout, Gradients din) {
  const GradView wanted = operand(swiglu_din, 0);
  const TensorView gate_up = swiglu.in[0], w = linear.in[1], dy = dout[0];
  if (fp8_linear(linear) || !wanted || wanted.accumulate ||
      !all_bf16({wanted.view, gate_up, w, dy})) {
    return false;
  }
  const SwigluProduct p{
      rows_of(dy.shape), w.shape[0], w.shape[1], dy.data, w.data, gate_up.data, wanted.view.data};
  if (!worth_it(p) || !wgmma_swiglu_fits(p)) return false;
  linear_parameter_gradients(linear, dy, din);
  wgmma_swiglu_backward(p);
  return true;
}

// A pair has both directions; each refuses what is the other's.
bool not_forward(const OpCall&, const OpCall&) { return false; }
bool not_backward(const OpCall&, Gradients, const OpCall&, Views, Gradients) { return false; }

}  // namespace

void add_linear_swiglu_pairs(Backend& backend) {
  backend.add_pair({"linear", "swiglu", forward, not_backward});
  backend.add_pair({"swiglu", "linear", not_forward, backward});
}

}  // namespace vitrine::gpu

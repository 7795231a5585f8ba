// Thin wrappers from named arguments to operation attributes.
#include "nn/ops.h"

namespace vitrine {

ParameterSpec& ParameterList::add(std::string name, Shape shape, Init init, bool decay) {
  ParameterSpec spec;
  spec.name = std::move(name);
  spec.shape = shape;
  spec.init = init;
  spec.decay = decay;
  specs_.push_back(std::move(spec));
  return specs_.back();
}

void ParameterList::tie(std::string name, Shape shape, std::string owner_full_name) {
  add(std::move(name), shape, Init::zeros()).tied_to = std::move(owner_full_name);
}

namespace nn {
namespace {

double number(int64_t value) { return static_cast<double>(value); }

Attrs attention_attrs(AttentionShape shape) {
  return {{"heads", number(shape.heads)},
          {"kv_heads", number(shape.kv_heads)},
          {"head_dim", number(shape.head_dim)}};
}

}  // namespace

Value linear(TapeBuilder& tape, Value x, Value weight, Value bias, Fp8Linears fp8) {
  Attrs attrs;
  if (fp8 != Fp8Linears::kOff) attrs.set("fp8", static_cast<double>(fp8));
  return tape.apply("linear", attrs, {x, weight, bias});
}

Value rms_norm(TapeBuilder& tape, Value x, Value weight, double eps) {
  return tape.apply("rms_norm", {{"eps", eps}}, {x, weight});
}

Residual add_rms_norm(TapeBuilder& tape, Value residual, Value delta, Value weight, double eps) {
  const auto out = tape.call("add_rms_norm", {{"eps", eps}}, {residual, delta, weight});
  return {out[0], out[1]};
}

Value layer_norm(TapeBuilder& tape, Value x, Value weight, Value bias, double eps) {
  return tape.apply("layer_norm", {{"eps", eps}}, {x, weight, bias});
}

Residual add_layer_norm(
    TapeBuilder& tape, Value residual, Value delta, Value weight, Value bias, double eps) {
  const auto out = tape.call("add_layer_norm", {{"eps", eps}}, {residual, delta, weight, bias});
  return {out[0], out[1]};
}

Value rotary(TapeBuilder& tape, Value qkv, AttentionShape shape, int axis, double base) {
  return tape.apply("rotary",
                    {{"heads", number(shape.heads + shape.kv_heads)},
                     {"head_dim", number(shape.head_dim)},
                     {"base", base},
                     {"axis", number(axis)}},
                    {qkv});
}

Value qk_norm(TapeBuilder& tape, Value qkv, Value wq, Value wk, AttentionShape shape, double eps) {
  Attrs attrs = attention_attrs(shape);
  attrs.set("eps", eps);
  return tape.apply("qk_norm", attrs, {qkv, wq, wk});
}

Value qk_norm_rotary(TapeBuilder& tape,
                     Value qkv,
                     Value wq,
                     Value wk,
                     AttentionShape shape,
                     int axis,
                     double eps,
                     double base) {
  Attrs attrs = attention_attrs(shape);
  attrs.set("eps", eps);
  attrs.set("base", base);
  attrs.set("axis", number(axis));
  return tape.apply("qk_norm", attrs, {qkv, wq, wk});
}

Value attention(TapeBuilder& tape, Value qkv, AttentionShape shape, int axis, bool causal) {
  Attrs attrs = attention_attrs(shape);
  attrs.set("axis", axis);
  attrs.set("causal", causal ? 1 : 0);
  return tape.apply("attention", attrs, {qkv});
}

Value swiglu(TapeBuilder& tape, Value gate_up, bool beside_fp8) {
  Attrs attrs;
  if (beside_fp8) attrs.set("fp8", 1);
  return tape.apply("swiglu", attrs, {gate_up});
}

Value gelu(TapeBuilder& tape, Value x, GeluForm form) {
  return tape.apply("gelu", {{"form", static_cast<double>(form)}}, {x});
}

Value embedding(TapeBuilder& tape, Value ids, Value table) {
  return tape.apply("embedding", {}, {ids, table});
}

Value linear_cross_entropy(TapeBuilder& tape,
                           Value x,
                           Value weight,
                           Value targets,
                           int64_t chunk_rows,
                           bool gradient_in_forward) {
  Attrs attrs{{"chunk_rows", number(chunk_rows)}};
  if (gradient_in_forward) attrs.set("gradient_in_forward", 1);
  return tape.apply("linear_cross_entropy", attrs, {x, weight, targets});
}

Value mse(TapeBuilder& tape, Value prediction, Value target) {
  return tape.apply("mse", {}, {prediction, target});
}

Value l1(TapeBuilder& tape, Value prediction, Value target) {
  return tape.apply("l1", {}, {prediction, target});
}

Value patchify(TapeBuilder& tape, Value frames, int64_t patch) {
  return tape.apply("patchify", {{"patch", number(patch)}}, {frames});
}

Value unpatchify(TapeBuilder& tape, Value patches, int64_t patch, int64_t height, int64_t width) {
  return tape.apply(
      "unpatchify",
      {{"patch", number(patch)}, {"height", number(height)}, {"width", number(width)}},
      {patches});
}

Value add(TapeBuilder& tape, Value a, Value b) { return tape.apply("add", {}, {a, b}); }

Value add_broadcast(TapeBuilder& tape, Value x, Value y, std::initializer_list<int> dims) {
  int mask = 0;
  for (const int dim : dims) mask |= 1 << dim;
  return tape.apply("add_broadcast", {{"dims", static_cast<double>(mask)}}, {x, y});
}

Value scale(TapeBuilder& tape, Value x, double factor) {
  return tape.apply("scale", {{"factor", factor}}, {x});
}

Value frame_difference(TapeBuilder& tape, Value z) {
  return tape.apply("frame_difference", {}, {z});
}

Value gated_sigmoid(TapeBuilder& tape, Value z, Value gain, Value offset) {
  return tape.apply("gated_sigmoid", {}, {z, gain, offset});
}

Value time_slice(TapeBuilder& tape, Value x, int64_t begin, int64_t count) {
  return tape.apply("time_slice", {{"begin", number(begin)}, {"count", number(count)}}, {x});
}

Value shift_window(TapeBuilder& tape, Value window, Value next) {
  return tape.apply("shift_window", {}, {window, next});
}

Value prepend_token(TapeBuilder& tape, Value x, Value token) {
  return tape.apply("prepend_token", {}, {x, token});
}

Value take_token(TapeBuilder& tape, Value x, int64_t index) {
  return tape.apply("take_token", {{"index", number(index)}}, {x});
}

Value mean_pool(TapeBuilder& tape, Value x) { return tape.apply("mean_pool", {}, {x}); }

Value flatten_frames(TapeBuilder& tape, Value x) { return tape.apply("flatten_frames", {}, {x}); }

}  // namespace nn
}  // namespace vitrine

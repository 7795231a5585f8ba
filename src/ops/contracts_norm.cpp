// Contracts of the normalisations: rms_norm, layer_norm, both with a pending residual add, and
// qk_norm.
#include "ops/contracts.h"

namespace vitrine::contracts {
namespace {

// Shared by the four norms over the last dimension: `rows_in` row inputs, then the parameters.
OpSignature infer_norm(const char* op, const Attrs& attrs, Types in, size_t rows_in, bool centred) {
  const size_t parameters = centred ? 2 : 1;
  check_count(op, in, rows_in + parameters, rows_in + parameters);
  check_floating(op, in);
  positive(op, attrs, "eps");
  check_rank_at_least(op, "x", in[0].shape, 1);
  if (in[0].shape[-1] < 1) fail(op, "the last dimension of " + in[0].shape.str() + " is empty");
  if (rows_in == 2) check_shape(op, "delta", in[1].shape, in[0].shape);
  check_shape(op, "weight", in[rows_in].shape, Shape{in[0].shape[-1]});
  if (centred) check_shape(op, "bias", in[rows_in + 1].shape, Shape{in[0].shape[-1]});
  const TensorType row{in[0].shape, in[0].dtype};
  const TensorType statistic{Shape{in[0].shape.rows()}, wide(in[0].dtype)};
  OpSignature s;
  s.out.assign(rows_in, row);
  s.saved.assign(parameters, statistic);
  return s;
}

OpSignature infer_rms_norm(const Attrs& a, Types in) {
  return infer_norm("rms_norm", a, in, 1, false);
}
OpSignature infer_add_rms_norm(const Attrs& a, Types in) {
  return infer_norm("add_rms_norm", a, in, 2, false);
}
OpSignature infer_layer_norm(const Attrs& a, Types in) {
  return infer_norm("layer_norm", a, in, 1, true);
}
OpSignature infer_add_layer_norm(const Attrs& a, Types in) {
  return infer_norm("add_layer_norm", a, in, 2, true);
}

// Floating-point operations for each element of x; the row statistics are negligible.
template <OpSignature (*Infer)(const Attrs&, Types), int Flops>
Cost forward_cost(const Attrs& attrs, Types in) {
  return {Flops * element_count(in[0]), forward_bytes(Infer(attrs, in), in), false};
}

constexpr char kRms[] = "rms_norm", kAddRms[] = "add_rms_norm", kLayer[] = "layer_norm",
               kAddLayer[] = "add_layer_norm", kQk[] = "qk_norm";

template <const char* Name, OpSignature (*Infer)(const Attrs&, Types), int Flops>
Cost backward_cost(const Attrs& attrs, Types in) {
  return {Flops * element_count(in[0]), backward_bytes(find_op(Name), Infer(attrs, in), in), false};
}

// qk_norm: qkv[..., (H + 2 G) d], wq[d], wk[d]; saved rstd[rows, H + G]. Turned to rotary positions
// along `axis` where there is a `base`.
OpSignature infer_qk_norm(const Attrs& attrs, Types in) {
  check_count(kQk, in, 3, 3);
  check_floating(kQk, in);
  positive(kQk, attrs, "eps");
  const PackedHeads h = packed_heads(kQk, attrs, in[0].shape);
  check_shape(kQk, "wq", in[1].shape, Shape{h.head_dim});
  check_shape(kQk, "wk", in[2].shape, Shape{h.head_dim});
  if (attrs.has("base")) {
    positive(kQk, attrs, "base");
    leading_axis(kQk, attrs, in[0].shape);
    if (h.head_dim % 2 != 0) {
      fail(kQk, "head_dim must be even to be turned, got " + std::to_string(h.head_dim));
    }
  }
  return {.out = {{in[0].shape, in[0].dtype}},
          .saved = {{Shape{in[0].shape.rows(), h.heads + h.kv_heads}, wide(in[0].dtype)}}};
}

// A turn takes 3 operations an element more.
template <Cost (*Plain)(const Attrs&, Types)>
Cost qk_norm_cost(const Attrs& attrs, Types in) {
  Cost cost = Plain(attrs, in);
  if (attrs.has("base")) cost.flops += 3 * element_count(in[0]);
  return cost;
}

}  // namespace

std::vector<OpDef> norm_ops() {
  return {
      {kRms,
       2,
       2,
       0b11,
       0b11,
       0,
       infer_rms_norm,
       forward_cost<infer_rms_norm, 4>,
       backward_cost<kRms, infer_rms_norm, 9>},
      {kAddRms,
       3,
       3,
       0b111,
       0b100,
       0b1,
       infer_add_rms_norm,
       forward_cost<infer_add_rms_norm, 5>,
       backward_cost<kAddRms, infer_add_rms_norm, 10>},
      {kLayer,
       3,
       3,
       0b111,
       0b011,
       0,
       infer_layer_norm,
       forward_cost<infer_layer_norm, 7>,
       backward_cost<kLayer, infer_layer_norm, 13>},
      {kAddLayer,
       4,
       4,
       0b1111,
       0b0100,
       0b1,
       infer_add_layer_norm,
       forward_cost<infer_add_layer_norm, 8>,
       backward_cost<kAddLayer, infer_add_layer_norm, 14>},
      {kQk,
       3,
       3,
       0b111,
       0b111,
       0,
       infer_qk_norm,
       qk_norm_cost<forward_cost<infer_qk_norm, 4>>,
       qk_norm_cost<backward_cost<kQk, infer_qk_norm, 9>>},
  };
}

}  // namespace vitrine::contracts

// Contracts of the planned operations.
#include "plan/plan_ops.h"

#include <algorithm>
#include <mutex>

#include "core/error.h"
#include "ops/contracts.h"

namespace vitrine {
namespace {

using contracts::backward_bytes;
using contracts::element_count;
using contracts::forward_bytes;
using contracts::sum_bytes;
using contracts::Types;
using contracts::whole;

double number(int64_t value) { return static_cast<double>(value); }

Shape with_dim(const Shape& shape, int dim, int64_t size) {
  std::vector<int64_t> dims = shape.dims();
  dims[static_cast<size_t>(dim)] = size;
  return Shape(dims);
}

// Query and key positions that a causal mask (and a window) lets through, a head and sample, of the
// whole sequence of `length`.
double visible(int64_t length, bool causal, int64_t window) {
  const double l = number(length);
  if (window > 0 && window < length) {
    const double w = number(window);
    return causal ? w * l - w * (w - 1) / 2 : std::min(l * l, 2 * w * l);
  }
  return causal ? l * (l + 1) / 2 : l * l;
}

// scored_attention: every score is written, masked and normalised in one pass, and kept.
OpSignature infer_scored(const Attrs& attrs, Types in) {
  const Shape& s = in[0].shape;
  const int64_t heads = whole("scored_attention", attrs, "heads", 1);
  const int64_t out = heads * whole("scored_attention", attrs, "head_dim", 1);
  const Shape scores{s[0], heads, s[1], s[1]};
  OpSignature g{.out = {{s.with_last(out), in[0].dtype}}, .saved = {{scores, in[0].dtype}}};
  if (attrs.integer("eager", 0) == 1) g.saved.push_back({scores, DType::kF32});
  if (attrs.number("dropout", 0) > 0) {
    g.saved.push_back({scores, DType::kU8});
    g.saved.push_back({scores, in[0].dtype});
  }
  g.forward_workspace = scores.elements() * static_cast<int64_t>(dtype_bytes(in[0].dtype));
  g.backward_workspace = 2 * g.forward_workspace;
  return g;
}
// Passes over the scores beside those of the products themselves, each a read or a write: softmax,
// (dropout and its mask).
double score_bytes(const Attrs& attrs, Types in, double passes, double dropout_passes) {
  const double scores =
      number(in[0].shape[0] * in[0].shape[1] * in[0].shape[1] * attrs.integer("heads")) *
      number(static_cast<int64_t>(dtype_bytes(in[0].dtype)));
  return scores * (passes + (attrs.number("dropout", 0) > 0 ? dropout_passes : 0));
}
Cost scored_forward(const Attrs& a, Types in) {
  const double pairs =
      number(in[0].shape[0] * in[0].shape[1] * in[0].shape[1] * a.integer("heads"));
  return {4 * pairs * a.number("head_dim"), sum_bytes(in) + score_bytes(a, in, 2, 2.5), true};
}
Cost scored_backward(const Attrs& a, Types in) {
  Cost c = scored_forward(a, in);
  return {2 * c.flops, 3 * sum_bytes(in) + score_bytes(a, in, 3, 2.5), true};
}

// flash_attention: T is this rank's part of a sequence of context x T.
OpSignature infer_flash(const Attrs& attrs, Types in) {
  const Shape& s = in[0].shape;
  const int64_t heads = whole("flash_attention", attrs, "heads", 1);
  const int64_t v = attrs.integer("v_head_dim", attrs.integer("head_dim"));
  return {.out = {{s.with_last(heads * v), in[0].dtype}},
          .saved = {{Shape{s[0], heads, s[1]}, DType::kF32}}};
}
double flash_pairs(const Attrs& a, const Shape& s) {
  const int64_t context = a.integer("context", 1);
  return number(s[0] * a.integer("heads")) *
         visible(s[1] * context, a.integer("causal") == 1, a.integer("window", 0)) /
         number(context);
}
Cost flash_forward(const Attrs& a, Types in) {
  const double width = a.number("head_dim") + a.number("v_head_dim", a.number("head_dim"));
  return {flash_pairs(a, in[0].shape) * 2 * width, forward_bytes(infer_flash(a, in), in), true};
}
Cost flash_backward(const Attrs& a, Types in) {
  return {2.5 * flash_forward(a, in).flops,
          backward_bytes(find_op("flash_attention"), infer_flash(a, in), in),
          true};
}

OpSignature infer_cross(const Attrs& attrs, Types in) {
  const Shape& s = in[0].shape;
  return {.out = {{s, in[0].dtype}},
          .saved = {{Shape{s[0], attrs.integer("heads"), s[1]}, DType::kF32}}};
}
Cost cross_forward(const Attrs& a, Types in) {
  const Shape& s = in[0].shape;
  return {4 * number(s[0] * s[1]) * a.number("keys") * a.number("heads") * a.number("head_dim"),
          forward_bytes(infer_cross(a, in), in),
          true};
}
Cost cross_backward(const Attrs& a, Types in) {
  return {2.5 * cross_forward(a, in).flops,
          backward_bytes(find_op("cross_attention"), infer_cross(a, in), in),
          true};
}

OpSignature infer_dropout(const Attrs&, Types in) {
  return {.out = {in[0]}, .saved = {{in[0].shape, DType::kU8}}};
}
template <OpSignature (*infer)(const Attrs&, Types)>
Cost one_pass(const Attrs& a, Types in) {
  return {element_count(in[0]), forward_bytes(infer(a, in), in), false};
}
OpSignature infer_same(const Attrs&, Types in) { return {.out = {in[0]}, .saved = {}}; }
// Reads the input (or the mask) and the output's gradient, writes the input's.
Cost dropout_backward(const Attrs&, Types in) {
  return {element_count(in[0]), 2.5 * sum_bytes(in.first(1)), false};
}
Cost activation_backward(const Attrs&, Types in) {
  return {element_count(in[0]), 3 * sum_bytes(in.first(1)), false};
}
Cost nothing(const Attrs&, Types) { return {}; }

OpSignature infer_gather(const Attrs& attrs, Types in) {
  const int64_t ranks = whole("tensor_gather", attrs, "ranks", 1);
  return {.out = {{with_dim(in[0].shape, 1, in[0].shape[1] * ranks), in[0].dtype}}, .saved = {}};
}
OpSignature infer_scatter(const Attrs& attrs, Types in) {
  const int64_t ranks = whole("tensor_scatter", attrs, "ranks", 1);
  return {.out = {{with_dim(in[0].shape, 1, in[0].shape[1] / ranks), in[0].dtype}}, .saved = {}};
}

OpSignature infer_router(const Attrs& attrs, Types in) {
  return {.out = {{in[0].shape.with_last(whole("router", attrs, "experts", 1)), DType::kF32}},
          .saved = {}};
}
Cost router_forward(const Attrs& a, Types in) {
  return {2 * element_count(in[0]) * a.number("experts"),
          forward_bytes(infer_router(a, in), in) + 4 * sum_bytes(infer_router(a, in).out),
          true};
}
Cost router_backward(const Attrs& a, Types in) {
  const Cost c = router_forward(a, in);
  return {2 * c.flops, 2 * c.bytes, true};
}

OpSignature infer_dispatch(const Attrs& attrs, Types in) {
  const int64_t tokens = whole("dispatch", attrs, "tokens", 1);
  return {.out = {{Shape{tokens, in[0].shape[-1]}, in[0].dtype}},
          .saved = {{Shape{tokens}, DType::kI32}}};
}
// Permuted before the exchange and sorted by expert after it.
Cost dispatch_cost(const Attrs& a, Types in) {
  return {0, sum_bytes(in.first(1)) + 3 * sum_bytes(infer_dispatch(a, in).out), false};
}
OpSignature infer_combine(const Attrs&, Types in) { return {.out = {in[2]}, .saved = {}}; }
Cost combine_forward(const Attrs&, Types in) {
  return {
      2 * element_count(in[0]), 3 * sum_bytes(in.first(1)) + 2 * sum_bytes(in.subspan(2)), false};
}
Cost combine_backward(const Attrs&, Types in) {
  return {2 * element_count(in[0]), 4 * sum_bytes(in.first(1)) + sum_bytes(in.subspan(2)), false};
}

OpSignature infer_grouped(const Attrs&, Types in) {
  return {.out = {{in[0].shape.with_last(in[1].shape[1]), in[0].dtype}}, .saved = {}};
}
Cost grouped_forward(const Attrs& a, Types in) {
  return {2 * element_count(in[0]) * number(in[1].shape[1]),
          forward_bytes(infer_grouped(a, in), in),
          true};
}
Cost grouped_backward(const Attrs& a, Types in) {
  return {2 * grouped_forward(a, in).flops,
          backward_bytes(find_op("grouped_linear"), infer_grouped(a, in), in),
          true};
}

// lm_loss: logits of the compute type, a copy in fp32 whose exponentials are kept.
OpSignature infer_lm_loss(const Attrs& attrs, Types in) {
  const int64_t rows = in[0].shape.rows(), vocabulary = in[1].shape[0];
  const int64_t chunk = attrs.integer("chunk_rows", 0);
  const int64_t narrow = static_cast<int64_t>(dtype_bytes(in[0].dtype));
  OpSignature g{.out = {{Shape{1}, DType::kF32}}, .saved = {{Shape{rows}, DType::kF32}}};
  if (chunk == 0) {
    const int64_t form = attrs.integer("form", 0);  // LossForm
    if (form == 3) {
      const int64_t whole_vocabulary = vocabulary * attrs.integer("ranks", 1);
      g.saved.push_back({Shape{rows, whole_vocabulary}, in[0].dtype});
      g.saved.push_back({Shape{rows, whole_vocabulary}, DType::kF32});
      g.forward_workspace = g.backward_workspace = rows * whole_vocabulary * 8;
      return g;
    }
    g.saved.push_back({Shape{rows, vocabulary}, form == 2 ? in[0].dtype : DType::kF32});
    g.forward_workspace = g.backward_workspace = rows * vocabulary *
                                                 (form == 2   ? 0
                                                  : form == 1 ? narrow
                                                  : form == 4 ? narrow + 12
                                                              : narrow + 4);
    // Log-probabilities, their gradient and the logits' beside each other, all in fp32.
    if (form == 0) g.backward_workspace = rows * vocabulary * 8;
  } else {
    const int64_t fused = attrs.integer("form", 0) == 2 ? 0 : 4;
    g.forward_workspace = g.backward_workspace =
        std::min(chunk, rows) * vocabulary * (narrow + fused);
  }
  return g;
}
Cost lm_loss_forward(const Attrs&, Types in) {
  const double logits = number(in[0].shape.rows() * in[1].shape[0]);
  return {2 * element_count(in[0]) * number(in[1].shape[0]),
          sum_bytes(in) + logits * (2 * 2 + 4 * 5),
          true};
}
Cost lm_loss_backward(const Attrs& a, Types in) {
  const double logits = number(in[0].shape.rows() * in[1].shape[0]);
  const bool chunked = a.integer("chunk_rows", 0) > 0;
  return {(chunked ? 3 : 2) * lm_loss_forward(a, in).flops,
          2 * sum_bytes(in) + logits * (4 * 2 + 2 * 3),
          true};
}

OpSignature infer_pack(const Attrs& attrs, Types in) {
  return {.out = {{in[0].shape.with_last(whole("pack", attrs, "width", 1)), in[0].dtype}},
          .saved = {}};
}
OpSignature infer_add_rows(const Attrs&, Types in) { return {.out = {in[0]}, .saved = {}}; }

// Single steps of a framework instead of one kernel keep what lies between them.
OpSignature infer_eager_norm(const Attrs&, Types in) {
  return {.out = {in[0]}, .saved = {{in[0].shape, DType::kF32}, in[0]}};
}
OpSignature infer_eager_swiglu(const Attrs&, Types in) {
  const TensorType half{in[0].shape.with_last(in[0].shape[-1] / 2), in[0].dtype};
  return {.out = {half}, .saved = {half}};
}
OpSignature infer_gated(const Attrs&, Types in) { return {.out = {in[0]}, .saved = {in[0]}}; }
Cost eager_cost(const Attrs&, Types in) {
  return {element_count(in[0]), 2 * sum_bytes(in.first(1)), false};
}

std::vector<OpDef> plan_ops() {
  return {
      {"eager_rms_norm", 2, 2, 3, 2, 0, infer_eager_norm, eager_cost, eager_cost},
      {"eager_swiglu", 1, 1, 1, 1, 0, infer_eager_swiglu, eager_cost, eager_cost},
      {"pack", 1, 2, 3, 0, 0, infer_pack, one_pass<infer_pack>, one_pass<infer_pack>},
      {"gated_product", 2, 2, 3, 3, 0, infer_gated, eager_cost, activation_backward},
      {"add_rows",
       2,
       2,
       3,
       0,
       0,
       infer_add_rows,
       one_pass<infer_add_rows>,
       one_pass<infer_add_rows>},
      {"scored_attention", 1, 1, 1, 1, 0, infer_scored, scored_forward, scored_backward},
      {"flash_attention", 1, 1, 1, 1, 1, infer_flash, flash_forward, flash_backward},
      {"cross_attention", 2, 2, 3, 3, 1, infer_cross, cross_forward, cross_backward},
      {"dropout", 1, 1, 1, 0, 0, infer_dropout, one_pass<infer_dropout>, dropout_backward},
      {"add_dropout", 2, 2, 3, 0, 0, infer_dropout, one_pass<infer_dropout>, dropout_backward},
      {"tensor_gather", 1, 1, 1, 0, 0, infer_gather, nothing, nothing},
      {"tensor_scatter", 1, 1, 1, 0, 0, infer_scatter, nothing, nothing},
      {"tensor_reduce", 1, 1, 1, 0, 0, infer_same, nothing, nothing},
      {"tensor_copy", 1, 1, 1, 0, 0, infer_same, nothing, nothing},
      {"router", 2, 2, 3, 3, 1, infer_router, router_forward, router_backward},
      {"dispatch", 1, 1, 1, 0, 0, infer_dispatch, dispatch_cost, dispatch_cost},
      {"combine", 3, 3, 3, 3, 0, infer_combine, combine_forward, combine_backward},
      {"grouped_linear", 2, 2, 3, 3, 0, infer_grouped, grouped_forward, grouped_backward},
      {"lm_loss", 3, 3, 3, 7, 0, infer_lm_loss, lm_loss_forward, lm_loss_backward},
  };
}

}  // namespace

void register_plan_ops() {
  static std::once_flag once;
  std::call_once(once, [] {
    for (const OpDef& op : plan_ops()) register_op(op);
  });
}

NodeTraffic node_traffic(const OpDef& op, const Attrs& attrs, Types in) {
  NodeTraffic t;
  const double bytes = number(in.empty() ? 0 : in[0].bytes());
  const auto both =
      [&](PlanGroup group, PlanCollective forward, PlanCollective backward, double size) {
        t = {group, forward, backward, size, size};
        if (forward == PlanCollective::kNone) t.forward_bytes = 0;
        if (backward == PlanCollective::kNone) t.backward_bytes = 0;
      };
  using C = PlanCollective;
  if (op.name == "tensor_gather") {
    both(PlanGroup::kTensor, C::kAllGather, C::kReduceScatter, bytes * attrs.number("ranks"));
  } else if (op.name == "tensor_scatter") {
    both(PlanGroup::kTensor, C::kReduceScatter, C::kAllGather, bytes);
  } else if (op.name == "tensor_reduce") {
    both(PlanGroup::kTensor, C::kAllReduce, C::kNone, bytes);
  } else if (op.name == "tensor_copy") {
    both(PlanGroup::kTensor, C::kNone, C::kAllReduce, bytes);
  } else if (op.name == "dispatch" && attrs.integer("ranks") > 1) {
    const double moved = attrs.number("tokens") * number(in[0].shape[-1]) *
                         number(static_cast<int64_t>(dtype_bytes(in[0].dtype)));
    both(PlanGroup::kExpert, C::kAllToAll, C::kAllToAll, moved);
    t.copies = attrs.number("copies", 1);
  } else if (op.name == "combine" && attrs.integer("ranks") > 1) {
    both(PlanGroup::kExpert, C::kAllToAll, C::kAllToAll, bytes);
    t.copies = attrs.number("copies", 1);
  } else if (op.name == "flash_attention" && attrs.integer("context", 1) > 1) {
    // Keys and values of every rank pass by; their gradients go the same way back.
    const int64_t kv = attrs.integer("kv_heads");
    const double width = number(kv) * (attrs.number("head_dim") +
                                       attrs.number("v_head_dim", attrs.number("head_dim")));
    const double whole_kv = number(in[0].shape[0] * in[0].shape[1]) * width *
                            number(static_cast<int64_t>(dtype_bytes(in[0].dtype))) *
                            attrs.number("context");
    both(PlanGroup::kContext, C::kRing, C::kRing, whole_kv);
    t.backward_bytes = 2 * whole_kv;
  } else if (op.name == "lm_loss" && attrs.integer("ranks", 1) > 1 &&
             attrs.integer("form", 0) == 3) {
    const double logits = number(in[0].shape.rows() * in[1].shape[0]) * attrs.number("ranks");
    both(PlanGroup::kTensor, C::kAllGather, C::kNone, 2 * logits);
  } else if (op.name == "lm_loss" && attrs.integer("ranks", 1) > 1) {
    // Maximum and sum of every row.
    const double rows = number(in[0].shape.rows()) * 4;
    both(PlanGroup::kTensor, C::kAllReduce, C::kNone, 2 * rows);
  }
  return t;
}

}  // namespace vitrine

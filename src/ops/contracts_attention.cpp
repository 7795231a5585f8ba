// Contracts of attention over packed heads and of rotary positions.
#include <algorithm>

#include "core/format.h"
#include "ops/contracts.h"

namespace vitrine::contracts {
namespace {

// attention: qkv[..., (H + 2 G) d] -> out[..., H d]; saved lse[groups, H, L]
OpSignature infer_attention(const Attrs& attrs, Types in) {
  const char* op = "attention";
  check_count(op, in, 1, 1);
  check_floating(op, in);
  const PackedHeads h = packed_heads(op, attrs, in[0].shape);
  const int axis = leading_axis(op, attrs, in[0].shape);
  const int64_t causal = whole(op, attrs, "causal", 0);
  if (causal > 1)
    fail(op, format("attribute 'causal' is 0 or 1, got %lld", static_cast<long long>(causal)));
  whole(op, attrs, "causal_block", 1, 1);
  const int64_t length = in[0].shape[axis];
  const int64_t groups = length == 0 ? 0 : in[0].shape.rows() / length;
  return {.out = {{in[0].shape.with_last(h.heads * h.head_dim), in[0].dtype}},
          .saved = {{Shape{groups, h.heads, length}, wide(in[0].dtype)}}};
}

// (query, key) pairs that the mask lets through, over all groups and heads.
double visible_pairs(const Attrs& attrs, const Shape& lse) {
  const int64_t length = lse[2];
  double pairs = static_cast<double>(length) * static_cast<double>(length);
  if (attrs.integer("causal") == 1) {
    const int64_t block = attrs.integer("causal_block", 1);
    pairs = 0;
    for (int64_t i = 0; i < length; ++i)
      pairs += static_cast<double>(std::min(length, (i / block + 1) * block));
  }
  return pairs * static_cast<double>(lse[0] * lse[1]);
}

// q kᵀ and p v, and scale, max, subtract, exp, sum on each pair.
Cost attention_forward_cost(const Attrs& attrs, Types in) {
  const OpSignature s = infer_attention(attrs, in);
  const double pairs = visible_pairs(attrs, s.saved[0].shape);
  const double head_dim = static_cast<double>(attrs.integer("head_dim"));
  return {pairs * (4 * head_dim + 5), forward_bytes(s, in), true};
}

// Five products (p again, dv, dp, dq, dk); p and ds on each pair; D = sum dO O on each output.
Cost attention_backward_cost(const Attrs& attrs, Types in) {
  const OpSignature s = infer_attention(attrs, in);
  const double pairs = visible_pairs(attrs, s.saved[0].shape);
  const double head_dim = static_cast<double>(attrs.integer("head_dim"));
  return {pairs * (10 * head_dim + 6) + 2 * element_count(s.out[0]),
          backward_bytes(find_op("attention"), s, in),
          true};
}

// rotary: x[..., heads d + rest] -> y of the same shape
OpSignature infer_rotary(const Attrs& attrs, Types in) {
  const char* op = "rotary";
  check_count(op, in, 1, 1);
  check_floating(op, in);
  const int64_t heads = whole(op, attrs, "heads", 1), head_dim = whole(op, attrs, "head_dim", 2);
  positive(op, attrs, "base");
  check_rank_at_least(op, "x", in[0].shape, 2);
  leading_axis(op, attrs, in[0].shape);
  if (head_dim % 2 != 0)
    fail(op, format("head_dim must be even, got %lld", static_cast<long long>(head_dim)));
  if (heads * head_dim > in[0].shape[-1]) {
    fail(op,
         format("%lld heads of %lld do not fit in the last dimension of %s",
                static_cast<long long>(heads),
                static_cast<long long>(head_dim),
                in[0].shape.str().c_str()));
  }
  return {.out = {{in[0].shape, in[0].dtype}}, .saved = {}};
}

// A pair takes 6 operations, so an element 3; the angles depend on the position alone.
Cost rotary_cost(const Attrs& attrs, Types in) {
  const OpSignature s = infer_rotary(attrs, in);
  const double rotated =
      static_cast<double>(in[0].shape.rows() * attrs.integer("heads") * attrs.integer("head_dim"));
  return {3 * rotated, forward_bytes(s, in), false};
}

}  // namespace

std::vector<OpDef> attention_ops() {
  return {
      {"attention",
       1,
       1,
       0b1,
       0b1,
       0b1,
       infer_attention,
       attention_forward_cost,
       attention_backward_cost},
      {"rotary", 1, 1, 0b1, 0, 0, infer_rotary, rotary_cost, rotary_cost},
  };
}

}  // namespace vitrine::contracts

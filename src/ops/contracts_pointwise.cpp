// Contracts of the operations that work element by element: activations, additions, scaling.
#include "core/format.h"
#include "ops/contracts.h"

namespace vitrine::contracts {
namespace {

OpSignature same_as_first(Types in) { return {.out = {{in[0].shape, in[0].dtype}}, .saved = {}}; }

OpSignature infer_swiglu(const Attrs&, Types in) {
  check_count("swiglu", in, 1, 1);
  check_floating("swiglu", in);
  check_rank_at_least("swiglu", "x", in[0].shape, 1);
  if (in[0].shape[-1] % 2 != 0)
    fail("swiglu", "the last dimension must be even, got " + in[0].shape.str());
  return {.out = {{in[0].shape.with_last(in[0].shape[-1] / 2), in[0].dtype}}, .saved = {}};
}

OpSignature infer_gelu(const Attrs& attrs, Types in) {
  check_count("gelu", in, 1, 1);
  check_floating("gelu", in);
  const int64_t form = whole("gelu", attrs, "form", 0);
  if (form > 2) {
    fail("gelu",
         format("attribute 'form' is 0 (erf), 1 (tanh) or 2 (sigmoid), got %lld",
                static_cast<long long>(form)));
  }
  return same_as_first(in);
}

OpSignature infer_add(const Attrs&, Types in) {
  check_count("add", in, 2, 2);
  check_floating("add", in);
  check_shape("add", "b", in[1].shape, in[0].shape);
  return same_as_first(in);
}

// add_broadcast: y's shape is x's without the dimensions whose bit of `dims` is off.
OpSignature infer_add_broadcast(const Attrs& attrs, Types in) {
  const char* op = "add_broadcast";
  check_count(op, in, 2, 2);
  check_floating(op, in);
  const int64_t dims = whole(op, attrs, "dims", 0);
  if (dims >> in[0].shape.rank() != 0) {
    fail(op,
         format("attribute 'dims' (%lld) has bits beyond the dimensions of %s",
                static_cast<long long>(dims),
                in[0].shape.str().c_str()));
  }
  std::vector<int64_t> kept;
  for (int i = 0; i < in[0].shape.rank(); ++i) {
    if (dims >> i & 1) kept.push_back(in[0].shape[i]);
  }
  check_shape(op, "y", in[1].shape, Shape(kept));
  return same_as_first(in);
}

OpSignature infer_scale(const Attrs& attrs, Types in) {
  check_count("scale", in, 1, 1);
  check_floating("scale", in);
  if (!attrs.has("factor")) fail("scale", "attribute 'factor' is missing");
  return same_as_first(in);
}

OpSignature infer_gated_sigmoid(const Attrs&, Types in) {
  const char* op = "gated_sigmoid";
  check_count(op, in, 3, 3);
  check_floating(op, in);
  check_rank_at_least(op, "z", in[0].shape, 1);
  check_shape(op, "gain", in[1].shape, Shape{in[0].shape[-1]});
  check_shape(op, "offset", in[2].shape, Shape{in[0].shape[-1]});
  return same_as_first(in);
}

constexpr char kSwiglu[] = "swiglu", kGelu[] = "gelu", kAdd[] = "add",
               kAddBroadcast[] = "add_broadcast", kScale[] = "scale",
               kGatedSigmoid[] = "gated_sigmoid";

// Operations for each element of the output; exp, tanh and erf count as one, as profilers do.
template <OpSignature (*Infer)(const Attrs&, Types), int Flops>
Cost forward_cost(const Attrs& attrs, Types in) {
  const OpSignature s = Infer(attrs, in);
  return {Flops * element_count(s.out[0]), forward_bytes(s, in), false};
}

template <const char* Name, OpSignature (*Infer)(const Attrs&, Types), int Flops>
Cost backward_cost(const Attrs& attrs, Types in) {
  const OpSignature s = Infer(attrs, in);
  return {Flops * element_count(s.out[0]), backward_bytes(find_op(Name), s, in), false};
}

}  // namespace

std::vector<OpDef> pointwise_ops() {
  return {
      {kSwiglu,
       1,
       1,
       0b1,
       0b1,
       0,
       infer_swiglu,
       forward_cost<infer_swiglu, 5>,
       backward_cost<kSwiglu, infer_swiglu, 11>},
      {kGelu,
       1,
       1,
       0b1,
       0b1,
       0,
       infer_gelu,
       forward_cost<infer_gelu, 8>,
       backward_cost<kGelu, infer_gelu, 13>},
      {kAdd,
       2,
       2,
       0b11,
       0,
       0,
       infer_add,
       forward_cost<infer_add, 1>,
       backward_cost<kAdd, infer_add, 0>},
      {kAddBroadcast,
       2,
       2,
       0b11,
       0,
       0,
       infer_add_broadcast,
       forward_cost<infer_add_broadcast, 1>,
       backward_cost<kAddBroadcast, infer_add_broadcast, 1>},
      {kScale,
       1,
       1,
       0b1,
       0,
       0,
       infer_scale,
       forward_cost<infer_scale, 1>,
       backward_cost<kScale, infer_scale, 1>},
      {kGatedSigmoid,
       3,
       3,
       0b111,
       0b011,
       0b1,
       infer_gated_sigmoid,
       forward_cost<infer_gated_sigmoid, 6>,
       backward_cost<kGatedSigmoid, infer_gated_sigmoid, 8>},
  };
}

}  // namespace vitrine::contracts

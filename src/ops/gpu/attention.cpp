// The row of attention: own kernels for short sequences, cuDNN for long ones, own kernels for what
// neither takes.
#include "ops/gpu/attention.h"

#include "gpu/runtime.h"
#include "ops/gpu/attention_mma.h"
#include "ops/gpu/gradient.h"
#include "ops/gpu/rows.h"

namespace vitrine::gpu {
namespace {

AttentionShape shape_of(const OpCall& call) {
  const Attrs& attrs = *call.attrs;
  const AxisRows rows(call.in[0].shape, attrs.integer("axis"));
  AttentionShape shape;
  shape.outer = rows.outer;
  shape.length = rows.length;
  shape.inner = rows.inner;
  shape.heads = static_cast<int>(attrs.integer("heads"));
  shape.kv_heads = static_cast<int>(attrs.integer("kv_heads"));
  shape.head_dim = static_cast<int>(attrs.integer("head_dim"));
  shape.causal = attrs.integer("causal") == 1;
  shape.causal_block = attrs.integer("causal_block", 1);
  return shape;
}

void attention_forward(const OpCall& call) {
  if (call.in[0].elements() == 0) return;
  const AttentionForward forward{
      shape_of(call), call.in[0].dtype, call.in[0].data, call.out[0].data, call.saved[0].data};
  if (!short_attention(forward) && !cudnn_attention(forward)) own_attention(forward);
}

void attention_backward(const OpCall& call, Views dout, Gradients din) {
  if (call.in[0].elements() == 0) return;
  const AttentionBackward backward{shape_of(call),
                                   call.in[0].dtype,
                                   call.in[0].data,
                                   call.out[0].data,
                                   dout[0].data,
                                   call.saved[0].data,
                                   din[0]};
  if (!short_attention(backward) && !cudnn_attention(backward)) own_attention(backward);
}

}  // namespace

void add_attention_rows(Backend& backend) {
  backend.add("attention", {attention_forward, when_wanted<attention_backward>});
}

}  // namespace vitrine::gpu

// Operations that are planned but that no backend of the engine runs: parts of tensor, context and
// expert parallelism, attention that keeps its scores, dropout. Their contracts join the registry,
// so that blocks made of them are recorded on the engine's tapes: one arithmetic of lifetimes for
// all.
#pragma once

#include "nn/block.h"
#include "ops/op.h"

namespace vitrine {

// Dimensions as in ops/OPERATIONS.md; t tensor, c context ranks; N tokens that a rank's experts
// receive. "name (attributes): inputs -> outputs; saved; what backward reads".
//
//   scored_attention (heads, kv_heads, head_dim, dropout, eager): qkv[B, T, (H + 2G) d] -> out;
//     probs[B, H, T, T], with dropout a mask u8 and the dropped probs, eager also f32; reads qkv
//   flash_attention (heads, kv_heads, head_dim, v_head_dim, causal, context, window):
//     qkv[B, T, ...] -> out[B, T, H dv], T of this rank of c T; lse; reads qkv, out
//   cross_attention (heads, head_dim, keys): q[B, T, H d], kv[B, keys, 2 H d] -> out; lse;
//     reads q, kv, out
//   pack (width): q, kv -> [..., width], side by side
//   add_rows: x[B, T, D], table[P, D] -> x + table[:T], learned positions
//   dropout: x -> y; mask u8
//   add_dropout: x, residual -> residual + dropout(x); mask u8
//   gated_product: gate, up -> silu(gate) up; silu(gate); reads both
//   eager_rms_norm: x, weight -> y; x in f32 and the normed x: single steps of a framework
//   eager_swiglu: x[..., 2F] -> y[..., F]; silu(gate); reads x
//   tensor_gather (ranks): x[B, T / t, D] -> [B, T, D]; all-gather, backward reduce-scatter
//   tensor_scatter (ranks): x[B, T, D] -> [B, T / t, D]; reduce-scatter, backward all-gather
//   tensor_reduce (ranks): x -> x; all-reduce, backward nothing
//   tensor_copy (ranks): x -> x; nothing, backward all-reduce
//   router (experts): x[..., D], w[E, D] -> probs[..., E] f32; reads x, w, probs
//   dispatch (ranks, tokens, copies): x[B, T, D] -> [N, D]; index i32[N]; permute and all-to-all
//   combine (ranks, copies): y[N, D], probs, residual[B, T, D] -> [B, T, D]; reads y, probs
//   grouped_linear (groups): x[N, K], w[groups, F, K] -> [N, F]; reads x, w
//   lm_loss (ranks, chunk_rows, form): x[..., D], w[V / t, D], targets -> loss[1]; logits as the
//     LossForm keeps them unless chunked; reads x, w, targets
//
// Registers them once; later calls do nothing. Thread-safe.
void register_plan_ops();

// What a node moves between ranks, for the nodes above that do.
enum class PlanGroup : uint8_t { kNone, kTensor, kContext, kExpert };
enum class PlanCollective : uint8_t {
  kNone,
  kAllGather,
  kReduceScatter,
  kAllReduce,
  kAllToAll,
  kRing
};
struct NodeTraffic {
  PlanGroup group = PlanGroup::kNone;
  PlanCollective forward = PlanCollective::kNone, backward = PlanCollective::kNone;
  // Bytes of the whole buffer (nccl-tests' "size"): what all-gather leaves on each rank, what
  // reduce-scatter, all-reduce and all-to-all start from.
  double forward_bytes = 0, backward_bytes = 0;
  double copies = 1;  // of a token, of an all-to-all
};
NodeTraffic node_traffic(const OpDef& op, const Attrs& attrs, std::span<const TensorType> in);

}  // namespace vitrine

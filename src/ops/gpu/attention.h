// Attention over packed heads on the GPU: what one call computes, and the two ways of computing it.
#pragma once

#include <cstdint>

#include "ops/op.h"

namespace vitrine::gpu {

// qkv seen as [outer, length, inner, (H + 2 G) d], out as [outer, length, inner, H d], lse as
// [outer * inner, H, length].
struct AttentionShape {
  int64_t outer = 1, length = 0, inner = 1;
  int heads = 1, kv_heads = 1, head_dim = 0;
  bool causal = false;
  int64_t causal_block = 1;  // query i sees key j when j / causal_block <= i / causal_block

  int64_t groups() const { return outer * inner; }
  int64_t qkv_width() const { return int64_t{heads + 2 * kv_heads} * head_dim; }
  int64_t out_width() const { return int64_t{heads} * head_dim; }
};

// Operands of one call, in device memory. `lse` is f32 (f64 under f64).
struct AttentionForward {
  AttentionShape shape;
  DType dtype = DType::kF32;
  const void* qkv = nullptr;
  void* out = nullptr;
  void* lse = nullptr;
};
struct AttentionBackward {
  AttentionShape shape;
  DType dtype = DType::kF32;
  const void *qkv = nullptr, *out = nullptr, *dout = nullptr, *lse = nullptr;
  GradView dqkv;
};

// Through cuDNN. False when it does not take the call, or when it failed once on this shape
// (logged): then nothing of use was written. Backward repeats bit for bit only under
// deterministic().
bool cudnn_attention(const AttentionForward& call);
bool cudnn_attention(const AttentionBackward& call);
// Own kernels: any dtype, head size, mask and axis; the same bits every time. Throw ConfigError
// when head_dim is too large for shared memory (above 1000).
void own_attention(const AttentionForward& call);
void own_attention(const AttentionBackward& call);

}  // namespace vitrine::gpu

// The operations as functions for a block's forward; shapes as in ops/OPERATIONS.md.
#pragma once

#include "nn/block.h"
#include "ops/fp8.h"

namespace vitrine::nn {

struct Residual {
  Value sum, normed;
};

struct AttentionShape {
  int64_t heads = 1, kv_heads = 1, head_dim = 1;
  int64_t packed() const { return (heads + 2 * kv_heads) * head_dim; }
};

// `fp8`: products of 8-bit operands where the shapes allow it.
Value linear(
    TapeBuilder& tape, Value x, Value weight, Value bias = {}, Fp8Linears fp8 = Fp8Linears::kOff);
Value rms_norm(TapeBuilder& tape, Value x, Value weight, double eps = 1e-6);
// Adds the pending delta first: one pass over memory for both.
Residual add_rms_norm(
    TapeBuilder& tape, Value residual, Value delta, Value weight, double eps = 1e-6);
Value layer_norm(TapeBuilder& tape, Value x, Value weight, Value bias, double eps = 1e-5);
Residual add_layer_norm(
    TapeBuilder& tape, Value residual, Value delta, Value weight, Value bias, double eps = 1e-5);
Value rotary(TapeBuilder& tape, Value qkv, AttentionShape shape, int axis, double base = 10000);
Value qk_norm(
    TapeBuilder& tape, Value qkv, Value wq, Value wk, AttentionShape shape, double eps = 1e-6);
// rotary(qk_norm()) in one pass over memory.
Value qk_norm_rotary(TapeBuilder& tape,
                     Value qkv,
                     Value wq,
                     Value wk,
                     AttentionShape shape,
                     int axis,
                     double eps = 1e-6,
                     double base = 10000);
Value attention(TapeBuilder& tape, Value qkv, AttentionShape shape, int axis, bool causal);
// `beside_fp8`: linears in fp8 read what it makes.
Value swiglu(TapeBuilder& tape, Value gate_up, bool beside_fp8 = false);
enum class GeluForm { kErf, kTanh, kQuick };
Value gelu(TapeBuilder& tape, Value x, GeluForm form = GeluForm::kErf);
Value embedding(TapeBuilder& tape, Value ids, Value table);
Value linear_cross_entropy(TapeBuilder& tape,
                           Value x,
                           Value weight,
                           Value targets,
                           int64_t chunk_rows = 0,
                           bool gradient_in_forward = false);
Value mse(TapeBuilder& tape, Value prediction, Value target);
Value l1(TapeBuilder& tape, Value prediction, Value target);
Value patchify(TapeBuilder& tape, Value frames, int64_t patch);
Value unpatchify(TapeBuilder& tape, Value patches, int64_t patch, int64_t height, int64_t width);
Value add(TapeBuilder& tape, Value a, Value b);
// `dims` lists x's dimensions that y has, ascending.
Value add_broadcast(TapeBuilder& tape, Value x, Value y, std::initializer_list<int> dims);
Value scale(TapeBuilder& tape, Value x, double factor);
Value frame_difference(TapeBuilder& tape, Value z);
Value gated_sigmoid(TapeBuilder& tape, Value z, Value gain, Value offset);
Value time_slice(TapeBuilder& tape, Value x, int64_t begin, int64_t count);
Value shift_window(TapeBuilder& tape, Value window, Value next);
Value prepend_token(TapeBuilder& tape, Value x, Value token);
Value take_token(TapeBuilder& tape, Value x, int64_t index);
Value mean_pool(TapeBuilder& tape, Value x);
Value flatten_frames(TapeBuilder& tape, Value x);

}  // namespace vitrine::nn

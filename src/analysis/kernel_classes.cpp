// Tables of parts of kernels' names; the first class that fits is taken.
#include "analysis/kernel_classes.h"

#include <algorithm>
#include <cctype>
#include <initializer_list>
#include <string_view>

namespace vitrine {
namespace {

using Parts = std::initializer_list<std::string_view>;

bool has(std::string_view text, const Parts& parts) {
  return std::any_of(parts.begin(), parts.end(), [&](std::string_view part) {
    return text.find(part) != std::string_view::npos;
  });
}

struct Row {
  KernelClass kind;
  Parts parts;
};

// Lower case. Order matters: an attention kernel is also CUTLASS, a convolution is also a GEMM, and
// "elementwise_kernel<...>" may hold any operation's name in its template.
const Row kRows[] = {
    {KernelClass::kOptimizer,
     {"multi_tensor_apply",
      "multitensor",
      "multi_tensor",
      "adam",
      "lamb_",
      "vitrine::gpu::(anonymous namespace)::update_kernel"}},
    {KernelClass::kAttention,
     {"flash", "fmha", "sdpa", "scaled_dot_product", "attention", "attn", "mha_", "pytorch_flash"}},
    {KernelClass::kConvolution,
     {"conv",
      "cudnn::winograd",
      "winograd",
      "dgrad",
      "wgrad",
      "implicit_gemm",
      "implicitgemm",
      "scudnn",
      "nchwtonhwc",
      "nhwctonchw",
      "igemm",
      "fprop",
      "miopen",
      "naive_conv"}},
    {KernelClass::kNormalisation,
     {"layer_norm",
      "layernorm",
      "batch_norm",
      "batchnorm",
      "bn_fw",
      "bn_bw",
      "rms_norm",
      "rmsnorm",
      "group_norm",
      "groupnorm",
      "norm_fwd",
      "norm_bwd",
      "gammabeta",
      "qk_norm",
      "vitrine::gpu::norm_rows",
      "vitrine::gpu::(anonymous namespace)::norm_kernel"}},
    {KernelClass::kMatmul,
     {"gemm",
      "cutlass",
      "cublas",
      "nvjet",
      "cijk_",
      "matmul",
      "_mm_",
      "splitk",
      "xmma",
      "gemv",
      "dot_kernel",
      "ampere_bf16",
      "ampere_fp16",
      "wgmma",
      "swiglu_product_kernel",  // Vitrine's, with swiglu in the product's end
      "bmm_",
      "triton_mm",
      "triton_tem"}},
    {KernelClass::kEmbedding,
     {"embedding",
      "indexselect",
      "index_select",
      "index_elementwise",
      "gather",
      "scatter",
      "index_kernel",
      "indexfunc",
      "index_put",
      "krn_partial",
      "compute_grad_weight"}},
    {KernelClass::kReduction,
     {"reduce_kernel",
      "reduce",
      "softmax",
      "nll_loss",
      "cross_entropy",
      "max_pool",
      "avg_pool",
      "cub::",
      "rocprim",
      "sum_",
      "squares_kernel",
      "triton_red",
      "triton_per",
      "lpnorm",
      "norm"}},
    {KernelClass::kElementwise,
     {"elementwise",
      "vectorized",
      "triton_poi",
      "fill",
      "dropout",
      "gelu",
      "relu",
      "silu",
      "swiglu",
      "catarray",
      "subtensorop",
      "copy",
      "transpose",
      "rotary",
      "pointwise",
      "threshold",
      "triangle",
      "tril",
      "arange"}},
};

// Instructions or shapes that only tensor (or matrix) cores have.
bool uses_tensor_cores(std::string_view text, KernelClass kind) {
  if (has(text,
          {"tensorop",
           "h884",
           "h1688",
           "h16816",
           "s884",
           "s1688",
           "s16816",
           "i8816",
           "i16832",
           "hmma",
           "imma",
           "wgmma",
           "swiglu_product_kernel",
           "gmma",
           "nvjet",
           "16816",
           "warpspecialized",
           "tcgen05",
           "_mfma",
           "mfma"})) {
    return true;
  }
  // NVIDIA's implicit GEMMs name their types; "ffma" is the vector unit's instruction.
  if (has(text, {"xmma"}) && !has(text, {"ffma", "simt"})) {
    return has(text, {"tensor", "bf16bf16", "f16f16", "tf32", "e4m3", "e5m2", "i8i8"});
  }
  if (kind == KernelClass::kAttention) return has(text, {"flash", "fmha"});
  // Tensile names the matrix instruction's shape, MI...; MI1x1x1 or none is the vector unit's.
  return text.starts_with("cijk_") && has(text, {"_mi16x16", "_mi32x32", "_mi4x4"});
}

}  // namespace

KernelTraits kernel_traits(const std::string& name) {
  std::string text(name);
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) {
    return static_cast<char>(std::tolower(c));
  });
  for (size_t at = 0; (at = text.find("convert", at)) != std::string::npos;) text.erase(at, 7);
  KernelTraits out;
  // ATen's loops carry functors and types of many names: the loop itself says what it is.
  const bool loop = has(text, {"elementwise_kernel", "vectorized_elementwise"});
  for (const Row& row : kRows) {
    if (loop && row.kind != KernelClass::kOptimizer && row.kind != KernelClass::kElementwise &&
        row.kind != KernelClass::kEmbedding) {
      continue;
    }
    if (loop && row.kind == KernelClass::kEmbedding &&
        !has(text, {"index_elementwise", "index_kernel", "index_put"})) {
      continue;
    }
    if (!has(text, row.parts)) continue;
    out.kind = row.kind;
    break;
  }
  out.tensor_core = (out.kind == KernelClass::kMatmul || out.kind == KernelClass::kAttention ||
                     out.kind == KernelClass::kConvolution) &&
                    uses_tensor_cores(text, out.kind);
  out.backward = has(text, {"backward", "_bwd", "dgrad", "wgrad", "bwd_"});
  return out;
}

}  // namespace vitrine

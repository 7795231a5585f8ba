// Names of kernels that real traces hold, and what each computes.
#include "analysis/kernel_classes.h"

#include <gtest/gtest.h>

namespace vitrine {
namespace {

struct Case {
  const char* name;
  KernelClass kind;
  bool tensor_core;
};

TEST(KernelClasses, FollowTheNamesOfRealKernels) {
  const Case cases[] = {
      {"void vitrine::gpu::(anonymous namespace)::squares_kernel<vitrine::gpu::(anonymous "
       "namespace)::Summed<__nv_bfloat16>>(vitrine::gpu::(anonymous "
       "namespace)::Summed<__nv_bfloat16>, long, vitrine::gpu::StepMessage*)",
       KernelClass::kReduction,
       false},
      {"nvjet_sm90_tst_192x192_64x4_2x1_v_bz_coopB_TNN", KernelClass::kMatmul, true},
      {"sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1",
       KernelClass::kMatmul,
       true},
      {"sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize32x32x8_stage3_ffma_kernel",
       KernelClass::kMatmul,
       false},
      {"ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_64x4_tn", KernelClass::kMatmul, true},
      {"void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_tn>",
       KernelClass::kMatmul,
       true},
      {"volta_sgemm_128x64_nt", KernelClass::kMatmul, false},
      {"Cijk_Alik_Bljk_SB_Bias_AS_SAV_UserArgs_MT64x16x32_MI16x16x1_SN",
       KernelClass::kMatmul,
       true},
      {"Cijk_Alik_Bljk_SB_MT64x16x32_SE_K1", KernelClass::kMatmul, false},
      {"void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64>>",
       KernelClass::kAttention,
       true},
      {"cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x64",
       KernelClass::kAttention,
       true},
      {"void vitrine::gpu::swiglu_product_kernel<true>(vitrine::gpu::SwigluMaps, "
       "vitrine::gpu::TileSchedule)",
       KernelClass::kMatmul,
       true},
      {"void vitrine::gpu::wgmma_kernel<192, true, true>(CUtensorMap_st, CUtensorMap_st)",
       KernelClass::kMatmul,
       true},
      {"void vitrine::gpu::(anonymous namespace)::update_kernel<vitrine::gpu::(anonymous "
       "namespace)::Arrays<__nv_bfloat16, __nv_bfloat16, float, float> >",
       KernelClass::kOptimizer,
       false},
      {"void vitrine::gpu::norm_rows::norm_backward_kernel<__nv_bfloat16, 6, false, true, false>",
       KernelClass::kNormalisation,
       false},
      {"void vitrine::gpu::(anonymous namespace)::norm_kernel<__nv_bfloat16, 6, true, true, false>",
       KernelClass::kNormalisation,
       false},
      {"fmhaSm100aKernel_QkvE4m3OBfloat16H64PagedKvCausal", KernelClass::kAttention, true},
      {"void implicit_convolve_sgemm<float, float, 1024, 6, 7, 3, 3>",
       KernelClass::kConvolution,
       false},
      {"void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3>",
       KernelClass::kConvolution,
       false},
      {"sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x32",
       KernelClass::kConvolution,
       true},
      {"void cudnn::bn_bw_1C11_kernel_new<float, float, float2, 512>",
       KernelClass::kNormalisation,
       false},
      {"void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>",
       KernelClass::kNormalisation,
       false},
      {"std::enable_if<(((8)>(0)))&&vllm::_typeConvert<c10::BFloat16>::exists>::type "
       "vllm::fused_add_rms_norm_kernel",
       KernelClass::kNormalisation,
       false},
      {"void at::native::vectorized_elementwise_kernel<8, "
       "at::native::CUDAFunctor_add<c10::BFloat16>>",
       KernelClass::kElementwise,
       false},
      {"void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::"
       "(anonymous namespace)::silu_backward_kernel(at::TensorIteratorBase&)>>",
       KernelClass::kElementwise,
       false},
      {"void at::native::(anonymous namespace)::CatArrayBatchedCopy<at::native::OpaqueType<2u>>",
       KernelClass::kElementwise,
       false},
      {"triton_poi_fused__to_copy_1", KernelClass::kElementwise, false},
      {"void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>",
       KernelClass::kReduction,
       false},
      {"void at::native::(anonymous namespace)::cunn_SoftMaxBackward<4, float>",
       KernelClass::kReduction,
       false},
      {"void at::native::(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<2>>",
       KernelClass::kOptimizer,
       false},
      {"void at::native::(anonymous namespace)::indexSelectLargeIndex<c10::BFloat16, long>",
       KernelClass::kEmbedding,
       false},
      {"void at::native::(anonymous namespace)::compute_grad_weight<c10::BFloat16>",
       KernelClass::kEmbedding,
       false},
      {"my_own_kernel", KernelClass::kOther, false}};
  for (const Case& each : cases) {
    const KernelTraits traits = kernel_traits(each.name);
    EXPECT_STREQ(kernel_class_name(traits.kind), kernel_class_name(each.kind)) << each.name;
    EXPECT_EQ(traits.tensor_core, each.tensor_core) << each.name;
  }
}

TEST(KernelClasses, BackwardIsKnownByNameWhereItIsSaid) {
  EXPECT_TRUE(kernel_traits("flash_bwd_dq_dk_dv_loop").backward);
  EXPECT_TRUE(kernel_traits("at::native::batch_norm_backward_kernel").backward);
  EXPECT_FALSE(kernel_traits("flash_fwd_kernel").backward);
}

}  // namespace
}  // namespace vitrine

// The shapes of the micro benchmark.
#include "ops/gpu/bench_gpu_cases.h"

namespace vitrine {
namespace {

Attrs attention(int heads, int kv_heads, int head_dim, int axis, int causal) {
  return {{"heads", heads},
          {"kv_heads", kv_heads},
          {"head_dim", head_dim},
          {"axis", axis},
          {"causal", causal}};
}

// Qwen2.5-1.5B: width 1536, 12 query and 2 + 2 key and value heads of 128, 8960 hidden features.
std::vector<GpuOpCase> language_cases() {
  const Shape x{4, 4096, 1536}, qkv{4, 4096, 2048}, hidden{4, 4096, 8960}, weight{1536};
  const Attrs eps{{"eps", 1e-6}};
  const int64_t words = 151936;
  // Of a model of 7 billion parameters, 8192 tokens.
  const Shape wide{8, 1024, 3584}, wide_weight{3584};
  return {
      {"rms_norm", eps, {x, weight}},
      {"add_rms_norm", eps, {x, x, weight}},
      {"layer_norm", eps, {x, weight, weight}},
      {"add_layer_norm", eps, {x, x, weight, weight}},
      {"rms_norm", eps, {wide, wide_weight}},
      {"add_rms_norm", eps, {wide, wide, wide_weight}},
      {"layer_norm", eps, {wide, wide_weight, wide_weight}},
      {"add_layer_norm", eps, {wide, wide, wide_weight, wide_weight}},
      {"rotary", {{"heads", 14}, {"head_dim", 128}, {"base", 1e6}, {"axis", 1}}, {qkv}},
      {"qk_norm",
       {{"heads", 12}, {"kv_heads", 2}, {"head_dim", 128}, {"eps", 1e-6}},
       {qkv, {128}, {128}}},
      {"swiglu", {}, {{4, 4096, 17920}}},
      {"gelu", {{"form", 0}}, {hidden}},
      {"gelu", {{"form", 1}}, {hidden}},
      {"gelu", {{"form", 2}}, {hidden}},
      {"add", {}, {x, x}},
      {"scale", {{"factor", 0.5}}, {x}},
      {"embedding", {}, {{4, 4096}, {words, 1536}}, 0, words},
      {"mse", {}, {x, x}},
      {"l1", {}, {x, x}},
      {"linear", {}, {x, {2048, 1536}, {2048}}},
      {"linear", {}, {x, {1536, 1536}}},
      {"linear", {}, {x, {17920, 1536}}},
      {"linear", {}, {hidden, {1536, 8960}}},
      {"linear", {{"fp8", 1}}, {x, {1536, 1536}}},
      {"linear", {{"fp8", 1}}, {x, {17920, 1536}}},
      {"linear", {{"fp8", 1}}, {hidden, {1536, 8960}}},
      {"attention", attention(12, 2, 128, 1, 1), {qkv}},
      {"linear_cross_entropy",
       {{"chunk_rows", 4096}, {"gradient_in_forward", 1}},
       {x, {words, 1536}, {4, 4096}},
       2,
       words},
  };
}

// A world model: 16 clips of 16 frames of 64 tokens, width 512.
std::vector<GpuOpCase> world_cases() {
  const Shape z{16, 16, 64, 512}, channel{512}, frames{64, 16, 64, 64, 3};
  const Attrs eps{{"eps", 1e-5}};
  return {
      {"layer_norm", eps, {z, channel, channel}},
      {"add_layer_norm", eps, {z, z, channel, channel}},
      {"gelu", {{"form", 0}}, {{16, 16, 64, 2048}}},
      {"patchify", {{"patch", 8}}, {frames}},
      {"unpatchify", {{"patch", 8}, {"height", 64}, {"width", 64}}, {{64, 16, 64, 192}}},
      {"add_broadcast", {{"dims", 0b1100}}, {z, {64, 512}}},
      {"add_broadcast", {{"dims", 0b1010}}, {z, {16, 512}}},
      {"frame_difference", {}, {z}},
      {"gated_sigmoid", {}, {z, channel, channel}},
      {"time_slice", {{"begin", 0}, {"count", 15}}, {z}},
      {"shift_window", {}, {z, z}},
      {"prepend_token", {}, {{256, 64, 512}, channel}},
      {"take_token", {{"index", 0}}, {{256, 65, 512}}},
      {"mean_pool", {}, {{256, 64, 512}}},
      {"flatten_frames", {}, {z}},
      {"attention", attention(8, 8, 64, 2, 0), {{16, 16, 64, 1536}}},
      {"attention", attention(8, 8, 64, 1, 1), {{16, 16, 64, 1536}}},
  };
}

// A step of the world model `small`: 32 clips of 16 frames of 256 tokens, width 640, 10 heads
// of 64.
std::vector<GpuOpCase> clip_cases() {
  const Shape x{32, 16, 256, 640}, qkv{32, 16, 256, 1920};
  const Attrs eps{{"eps", 1e-6}},
      heads{{"heads", 10}, {"kv_heads", 10}, {"head_dim", 64}, {"eps", 1e-6}};
  Attrs turned = heads;
  turned.set("base", 1e4);
  turned.set("axis", 1);
  return {
      {"rms_norm", eps, {x, {640}}},
      {"add_rms_norm", eps, {x, x, {640}}},
      {"qk_norm", heads, {qkv, {64}, {64}}},
      {"qk_norm", turned, {qkv, {64}, {64}}},
      {"swiglu", {}, {{32, 16, 256, 3424}}},
      {"attention", attention(10, 10, 64, 2, 0), {qkv}},
      {"attention", attention(10, 10, 64, 1, 1), {qkv}},
  };
}

// What that model runs once a step: frames of 128 x 128 in patches of 8 x 8, 5 actions.
std::vector<GpuOpCase> once_a_step_cases() {
  const Shape x{32, 16, 256, 640}, clip{32, 17, 256, 192}, z{32, 16, 256, 192}, channel{192};
  return {
      {"patchify", {{"patch", 8}}, {{32, 17, 128, 128, 3}}},
      {"time_slice", {{"begin", 0}, {"count", 16}}, {clip}},
      {"frame_difference", {}, {z}},
      {"add_broadcast", {{"dims", 0b1100}}, {x, {256, 640}}},
      {"embedding", {}, {{32, 17}, {5, 640}}, 0, 5},
      {"time_slice", {{"begin", 0}, {"count", 16}}, {{32, 17, 640}}},
      {"add_broadcast", {{"dims", 0b1011}}, {x, {32, 16, 640}}},
      {"add", {}, {z, z}},
      {"gated_sigmoid", {}, {z, channel, channel}},
      {"mse", {}, {z, z}},
      {"unpatchify", {{"patch", 8}, {"height", 128}, {"width", 128}}, {z}},
      {"shift_window", {}, {z, z}},
  };
}

}  // namespace

std::vector<GpuOpCase> gpu_op_cases() {
  std::vector<GpuOpCase> all;
  for (const auto& cases : {language_cases(), world_cases(), clip_cases(), once_a_step_cases()}) {
    all.insert(all.end(), cases.begin(), cases.end());
  }
  return all;
}

}  // namespace vitrine

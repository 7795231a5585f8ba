// Hugging Face configurations: each family's keys give the published count; damaged ones are
// refused with the key.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/json.h"
#include "plan/model_shape.h"
#include "support/temporary_folder.h"
#include "support/text_files.h"

namespace vitrine {
namespace {

using testing::AllOf;
using testing::HasSubstr;

ModelShape from_hf(const std::string& text) {
  return model_shape_from_hf(parse_json(text, "config.json"), "config.json");
}

std::string error_of(const std::string& text) {
  try {
    from_hf(text);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

constexpr char kLlama3[] = R"({"architectures": ["LlamaForCausalLM"], "attention_bias": false,
  "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 14336,
  "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "llama",
  "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
  "pretraining_tp": 1, "rope_scaling": {"factor": 8.0, "rope_type": "llama3"},
  "rope_theta": 500000.0, "tie_word_embeddings": false, "vocab_size": 128256})";

TEST(HuggingFaceShape, OfLlamaIsTheBuiltInOne) {
  const ModelShape model = from_hf(kLlama3);
  EXPECT_EQ(model.parameters(), 8'030'261'248);
  EXPECT_EQ(model.max_sequence, 131072);
  EXPECT_EQ(model.source, "config.json");
}

TEST(HuggingFaceShape, IsReadFromAFileOrItsFolder) {
  const TemporaryFolder folder;
  const std::string path = write_file(folder / "config.json", kLlama3);
  EXPECT_EQ(model_shape(path).parameters(), 8'030'261'248);
  EXPECT_EQ(model_shape(folder.path()).parameters(), 8'030'261'248);
}

TEST(HuggingFaceShape, OfMistralHasItsWindow) {
  const std::string keys = R"("model_type": "mistral", "architectures": ["MistralForCausalLM"],
    "hidden_size": 4096, "intermediate_size": 14336, "max_position_embeddings": 32768,
    "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
    "vocab_size": 32000)";
  const ModelShape first = from_hf("{" + keys + R"(, "sliding_window": 4096})");
  EXPECT_EQ(first.parameters(), 7'241'732'096);
  EXPECT_EQ(first.stack.window, 4096);
  EXPECT_EQ(first.stack.window_layers, 32);
  EXPECT_EQ(from_hf("{" + keys + R"(, "sliding_window": null})").stack.window_layers, 0);
}

TEST(HuggingFaceShape, OfMixturesHasTheirExperts) {
  const ModelShape mixtral = from_hf(R"({"architectures": ["MixtralForCausalLM"],
    "hidden_size": 4096, "intermediate_size": 14336, "max_position_embeddings": 32768,
    "model_type": "mixtral", "num_attention_heads": 32, "num_experts_per_tok": 2,
    "num_hidden_layers": 32, "num_key_value_heads": 8, "num_local_experts": 8,
    "sliding_window": null, "vocab_size": 32000})");
  EXPECT_EQ(mixtral.parameters(), 46'702'792'704);
  const ModelShape qwen3 = from_hf(R"({"architectures": ["Qwen3MoeForCausalLM"],
    "decoder_sparse_step": 1, "head_dim": 128, "hidden_size": 2048, "intermediate_size": 6144,
    "max_position_embeddings": 40960, "max_window_layers": 48, "mlp_only_layers": [],
    "model_type": "qwen3_moe", "moe_intermediate_size": 768, "num_attention_heads": 32,
    "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 48,
    "num_key_value_heads": 4, "sliding_window": null, "tie_word_embeddings": false,
    "use_sliding_window": false, "vocab_size": 151936})");
  EXPECT_EQ(qwen3.parameters(), 30'532'122'624);
  EXPECT_EQ(qwen3.active_parameters(), 3'353'032'704);
  // Qwen1.5-MoE-A2.7B.
  const ModelShape qwen2 = from_hf(R"({"architectures": ["Qwen2MoeForCausalLM"],
    "decoder_sparse_step": 1, "hidden_size": 2048, "intermediate_size": 5632,
    "max_position_embeddings": 8192, "max_window_layers": 21, "model_type": "qwen2_moe",
    "moe_intermediate_size": 1408, "num_attention_heads": 16, "num_experts": 60,
    "num_experts_per_tok": 4, "num_hidden_layers": 24, "num_key_value_heads": 16,
    "shared_expert_intermediate_size": 5632, "sliding_window": 32768,
    "tie_word_embeddings": false, "use_sliding_window": false, "vocab_size": 151936})");
  EXPECT_EQ(qwen2.parameters(), 14'315'784'192);
}

TEST(HuggingFaceShape, OfDeepSeekV3HasLatentAttention) {
  const ModelShape model = from_hf(R"({"architectures": ["DeepseekV3ForCausalLM"],
    "attention_bias": false, "first_k_dense_replace": 3, "hidden_size": 7168,
    "intermediate_size": 18432, "kv_lora_rank": 512, "max_position_embeddings": 163840,
    "model_type": "deepseek_v3", "moe_intermediate_size": 2048, "moe_layer_freq": 1,
    "n_routed_experts": 256, "n_shared_experts": 1, "num_attention_heads": 128,
    "num_experts_per_tok": 8, "num_hidden_layers": 61, "num_key_value_heads": 128,
    "num_nextn_predict_layers": 1, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "quantization_config": {"quant_method": "fp8"}, "v_head_dim": 128,
    "tie_word_embeddings": false, "vocab_size": 129280})");
  EXPECT_EQ(model.parameters(), model_shape("deepseek-v3-mtp").parameters());
  EXPECT_EQ(model.stack.rope_head_dim, 64);
}

TEST(HuggingFaceShape, OfGptOssHasBiasesSinksAndWindows) {
  const ModelShape model = from_hf(R"({"architectures": ["GptOssForCausalLM"],
    "attention_bias": true, "experts_per_token": 4, "head_dim": 64, "hidden_size": 2880,
    "intermediate_size": 2880, "layer_types": ["sliding_attention", "full_attention",
    "sliding_attention", "full_attention", "sliding_attention", "full_attention",
    "sliding_attention", "full_attention", "sliding_attention", "full_attention",
    "sliding_attention", "full_attention", "sliding_attention", "full_attention",
    "sliding_attention", "full_attention", "sliding_attention", "full_attention",
    "sliding_attention", "full_attention", "sliding_attention", "full_attention",
    "sliding_attention", "full_attention"], "max_position_embeddings": 131072,
    "model_type": "gpt_oss", "num_attention_heads": 64, "num_hidden_layers": 24,
    "num_key_value_heads": 8, "num_local_experts": 32, "sliding_window": 128,
    "tie_word_embeddings": false, "vocab_size": 201088})");
  EXPECT_EQ(model.parameters(), 20'914'757'184);
  EXPECT_EQ(model.stack.window_layers, 12);
}

TEST(HuggingFaceShape, OfGpt2AndItsLike) {
  EXPECT_EQ(from_hf(R"({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_ctx": 1024,
    "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024, "vocab_size": 50257})")
                .parameters(),
            124'439'808);
  const ModelShape neox = from_hf(R"({"architectures": ["GPTNeoXForCausalLM"], "hidden_size": 6144,
    "intermediate_size": 24576, "max_position_embeddings": 2048, "model_type": "gpt_neox",
    "num_attention_heads": 64, "num_hidden_layers": 44, "rotary_pct": 0.25,
    "tie_word_embeddings": false, "vocab_size": 50432})");
  EXPECT_EQ(neox.parameters(), 20'554'567'680);
  EXPECT_TRUE(neox.stack.parallel_block);
  // BLOOM's files name the base class or the causal one, and call sizes by either name.
  for (const char* sizes :
       {R"("architectures": ["BloomForCausalLM"], "n_embed": 14336, "num_attention_heads": 112)",
        R"("architectures": ["BloomModel"], "hidden_size": 14336, "n_head": 112)"}) {
    EXPECT_EQ(from_hf(std::string("{") + sizes +
                      R"(, "model_type": "bloom", "n_layer": 70, "vocab_size": 250880})")
                  .parameters(),
              176'247'271'424);
  }
  EXPECT_EQ(from_hf(R"({"architectures": ["OPTForCausalLM"], "do_layer_norm_before": true,
    "dropout": 0.1, "ffn_dim": 16384, "hidden_size": 4096, "max_position_embeddings": 2048,
    "model_type": "opt", "num_attention_heads": 32, "num_hidden_layers": 32,
    "vocab_size": 50272, "word_embed_proj_dim": 4096})")
                .parameters(),
            6'658'473'984);
}

TEST(HuggingFaceShape, OfQwenIsTheBuiltInOne) {
  const ModelShape qwen2 = from_hf(R"({"architectures": ["Qwen2ForCausalLM"], "hidden_size": 896,
    "intermediate_size": 4864, "max_position_embeddings": 32768, "max_window_layers": 24,
    "model_type": "qwen2", "num_attention_heads": 14, "num_hidden_layers": 24,
    "num_key_value_heads": 2, "sliding_window": 32768, "tie_word_embeddings": true,
    "use_sliding_window": false, "vocab_size": 151936})");
  EXPECT_EQ(qwen2.parameters(), 494'032'768);
  EXPECT_EQ(qwen2.stack.window_layers, 0);
  const ModelShape qwen3 = from_hf(R"({"architectures": ["Qwen3ForCausalLM"], "hidden_size": 1024,
    "head_dim": 128, "intermediate_size": 3072, "max_position_embeddings": 40960,
    "model_type": "qwen3", "num_attention_heads": 16, "num_hidden_layers": 28,
    "num_key_value_heads": 8, "tie_word_embeddings": true, "vocab_size": 151936})");
  EXPECT_EQ(qwen3.parameters(), 596'049'920);
}

constexpr char kClipTower[] = R"({"hidden_size": 1024, "image_size": 336,
  "intermediate_size": 4096, "model_type": "clip_vision_model", "num_attention_heads": 16,
  "num_hidden_layers": 24, "patch_size": 14, "projection_dim": 768})";

// torchvision's vit_b_16 has 86,567,656; CLIP's vision part 303,966,208 with its projection of
// 768 x 1024, of which its own tower is 303,179,776.
TEST(HuggingFaceShape, OfPictureEncoders) {
  EXPECT_EQ(from_hf(R"({"architectures": ["ViTForImageClassification"], "hidden_size": 768,
    "image_size": 224, "intermediate_size": 3072, "model_type": "vit", "num_attention_heads": 12,
    "num_hidden_layers": 12, "num_labels": 1000, "patch_size": 16, "qkv_bias": true})")
                .parameters(),
            86'567'656);
  const std::string vision = R"({"hidden_size": 1024, "image_size": 224,
    "intermediate_size": 4096, "model_type": "clip_vision_model", "num_attention_heads": 16,
    "num_hidden_layers": 24, "patch_size": 14, "projection_dim": 768)";
  EXPECT_EQ(
      from_hf(vision + R"(, "architectures": ["CLIPVisionModelWithProjection"]})").parameters(),
      303'966'208);
  EXPECT_EQ(from_hf(R"({"architectures": ["CLIPModel"], "model_type": "clip", "projection_dim": 768,
    "text_config": {}, "vision_config": )" +
                    vision + "}}")
                .parameters(),
            303'966'208);
}

TEST(HuggingFaceShape, OfLlavaIsTextAndTower) {
  const ModelShape model = from_hf(R"({"architectures": ["LlavaForConditionalGeneration"],
    "model_type": "llava", "projector_hidden_act": "gelu", "text_config": {
    "max_position_embeddings": 4096, "model_type": "llama", "vocab_size": 32064},
    "vision_config": )" + std::string(kClipTower) +
                                   "}");
  EXPECT_EQ(model.parameters(), 7'063'427'072);
  EXPECT_EQ(model.family, "multimodal");
  EXPECT_EQ(model.picture_patches, 576);
  const ModelShape original = from_hf(R"({"architectures": ["LlavaLlamaForCausalLM"],
    "hidden_size": 4096, "intermediate_size": 11008, "max_position_embeddings": 4096,
    "mm_projector_type": "mlp2x_gelu", "mm_vision_tower": "openai/clip-vit-large-patch14-336",
    "model_type": "llava_llama", "num_attention_heads": 32, "num_hidden_layers": 32,
    "num_key_value_heads": 32, "vocab_size": 32064})");
  EXPECT_EQ(original.parameters(), 7'063'427'072);
}

// kLlama3 with one key given another value (JSON; "" leaves it out).
std::string with(const std::string& key, const std::string& value) {
  Json config = parse_json(kLlama3, "config.json");
  config.erase(key);
  if (!value.empty()) config[key] = parse_json(value, "value");
  return config.dump();
}

TEST(HuggingFaceShape, OfAnUnknownArchitectureListsTheKnownOnes) {
  EXPECT_THAT(error_of(with("architectures", R"(["MambaForCausalLM"])")),
              AllOf(HasSubstr("config.json: architecture \"MambaForCausalLM\" is not known"),
                    HasSubstr("LlamaForCausalLM"),
                    HasSubstr("LlavaLlamaForCausalLM")));
  EXPECT_THAT(error_of(R"({"model_type": "rwkv"})"), HasSubstr("\"rwkv\" is not known"));
  EXPECT_THAT(error_of(R"({"architectures": [], "model_type": 3})"), HasSubstr("model_type"));
}

TEST(HuggingFaceShape, WithDamagedKeysIsRefusedByName) {
  for (const char* key : {"vocab_size",
                          "hidden_size",
                          "num_hidden_layers",
                          "num_attention_heads",
                          "intermediate_size"}) {
    EXPECT_THAT(error_of(with(key, "")), HasSubstr(std::string(key) + "\" is missing"));
    EXPECT_THAT(error_of(with(key, "null")), HasSubstr(std::string(key) + "\" is missing"));
    EXPECT_THAT(error_of(with(key, "\"many\"")), HasSubstr(key));
    EXPECT_THAT(error_of(with(key, "0")), HasSubstr(key));
    EXPECT_THAT(error_of(with(key, "-3")), HasSubstr(key));
    EXPECT_THAT(error_of(with(key, "1e300")), HasSubstr(key));
  }
  EXPECT_THAT(error_of(with("num_key_value_heads", "0")), HasSubstr("kv_heads"));
  EXPECT_THAT(error_of(with("num_key_value_heads", "5")), HasSubstr("multiple of kv_heads (5)"));
  EXPECT_THAT(error_of(with("attention_bias", "1")), HasSubstr("attention_bias"));
  EXPECT_THAT(error_of("[]"), HasSubstr("expected an object"));
}

TEST(HuggingFaceShape, OfVariantsThatAreNotKnownIsRefused) {
  EXPECT_THAT(error_of(R"({"architectures": ["OPTForCausalLM"], "ffn_dim": 4096,
    "hidden_size": 1024, "max_position_embeddings": 2048, "model_type": "opt",
    "num_attention_heads": 16, "num_hidden_layers": 24, "vocab_size": 50272,
    "word_embed_proj_dim": 512})"),
              HasSubstr("word_embed_proj_dim"));
  EXPECT_THAT(error_of(R"({"architectures": ["LlavaForConditionalGeneration"],
    "text_config": {"model_type": "mamba"}, "vision_config": )" +
                       std::string(kClipTower) + "}"),
              HasSubstr("text_config: architecture \"mamba\""));
  EXPECT_THAT(error_of(R"({"architectures": ["LlavaForConditionalGeneration"],
    "text_config": {}, "vision_config": {"model_type": "siglip_vision_model"}})"),
              HasSubstr("siglip_vision_model"));
  EXPECT_THAT(error_of(R"({"architectures": ["LlavaForConditionalGeneration"]})"),
              HasSubstr("text_config"));
}

}  // namespace
}  // namespace vitrine

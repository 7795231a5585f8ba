// Decoders: published parameter counts, ports, Hugging Face configurations and names, arithmetic.
#include "models/decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "core/json.h"
#include "models/forward.h"

namespace vitrine {
namespace {

using testing::HasSubstr;

int64_t parameter_count(const DecoderConfig& config) {
  const Model model = build_decoder(config, 16);
  return make_parameter_table(model, Strategy{}).total_elements;
}

DecoderConfig from_hf(const std::string& text) {
  return decoder_from_hf_config(parse_json(text, "config.json"), "config.json");
}

std::string hf_error(const std::string& text) {
  try {
    from_hf(text);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

constexpr char kQwen3[] = R"({
  "architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
  "head_dim": 128, "hidden_act": "silu", "hidden_size": 1024, "initializer_range": 0.02,
  "intermediate_size": 3072, "max_position_embeddings": 40960, "max_window_layers": 28,
  "model_type": "qwen3", "num_attention_heads": 16, "num_hidden_layers": 28,
  "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000,
  "sliding_window": null, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
  "use_cache": true, "use_sliding_window": false, "vocab_size": 151936})";

std::string mistral(const std::string& extra) {
  return R"({"architectures": ["MistralForCausalLM"], "model_type": "mistral", "hidden_size": 4096,
    "intermediate_size": 14336, "max_position_embeddings": 32768, "num_attention_heads": 32,
    "num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
    "rope_theta": 1000000.0, "vocab_size": 32768)" +
         extra + "}";
}

// The totals are those of the published safetensors files.
TEST(Decoder, HasThePublishedParameterCounts) {
  EXPECT_EQ(parameter_count(decoder_size("qwen2.5-0.5b")), 494'032'768);
  EXPECT_EQ(parameter_count(decoder_size("qwen2.5-1.5b")), 1'543'714'304);
  EXPECT_EQ(parameter_count(decoder_size("qwen2.5-7b")), 7'615'616'512);
  EXPECT_EQ(parameter_count(decoder_size("llama3-8b")), 8'030'261'248);
  EXPECT_EQ(parameter_count(from_hf(kQwen3)), 596'049'920);
  EXPECT_EQ(parameter_count(from_hf(mistral(R"(, "sliding_window": null)"))), 7'248'023'552);
}

TEST(Decoder, BuildsTheSameModelFromAHuggingFaceConfigAsFromTheSize) {
  const DecoderConfig config = from_hf(R"({"architectures": ["Qwen2ForCausalLM"],
    "hidden_act": "silu", "hidden_size": 896, "initializer_range": 0.02, "intermediate_size": 4864,
    "max_position_embeddings": 32768, "max_window_layers": 21, "model_type": "qwen2",
    "num_attention_heads": 14, "num_hidden_layers": 24, "num_key_value_heads": 2,
    "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 32768,
    "tie_word_embeddings": true, "use_sliding_window": false, "vocab_size": 151936})");
  Json ours = decoder_to_json(decoder_size("qwen2.5-0.5b")), theirs = decoder_to_json(config);
  ours.erase("name");
  theirs.erase("name");
  EXPECT_EQ(ours, theirs);
}

TEST(Decoder, RefusesFeaturesThatWouldChangeTheArithmetic) {
  EXPECT_THAT(hf_error(R"({"architectures": ["GPT2LMHeadModel"]})"),
              testing::AllOf(HasSubstr("GPT2LMHeadModel"), HasSubstr("Qwen2ForCausalLM")));
  EXPECT_THAT(hf_error(R"({"model_type": "mamba"})"), HasSubstr("mamba"));
  // A Mistral file without the key has the window of its configuration class.
  EXPECT_THAT(hf_error(mistral("")), HasSubstr("sliding_window 4096 is in use"));
  EXPECT_EQ(hf_error(mistral(R"(, "sliding_window": 32768)")), "");
  EXPECT_THAT(
      hf_error(mistral(R"(, "sliding_window": null, "rope_scaling": {"rope_type": "yarn"})")),
      HasSubstr("yarn"));
  EXPECT_THAT(hf_error(mistral(R"(, "sliding_window": null, "hidden_act": "gelu")")),
              HasSubstr("gelu"));
  EXPECT_THAT(hf_error(mistral(R"(, "sliding_window": null, "quantization_config": {})")),
              HasSubstr("quantization_config"));
  EXPECT_THAT(hf_error(R"({"model_type": "llama", "vocab_size": 5})"), HasSubstr("hidden_size"));
  EXPECT_THAT(hf_error(R"({"model_type": "llama", "vocab_size": 5, "hidden_size": "big"})"),
              HasSubstr("is missing"));
}

TEST(Decoder, ReadsOverridesAndNamesUnknownKeys) {
  const DecoderConfig config = decoder_from_json(
      parse_json(R"({"family": "decoder", "size": "tiny", "layers": 2, "hidden": 96, "heads": 3})",
                 ""),
      "model");
  EXPECT_EQ(config.head_dim, 32);
  EXPECT_EQ(config.kv_heads, 3);
  EXPECT_EQ(config.ffn, 256);
  EXPECT_EQ(config.layers, 2);
  try {
    decoder_from_json(parse_json(R"({"size": "tiny", "layer": 2})", ""), "model");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("model.layer\"; did you mean \"layers\""));
  }
  EXPECT_THROW(decoder_from_json(parse_json(R"({"size": "tiny", "kv_heads": 3})", ""), "model"),
               ConfigError);
  EXPECT_THROW(decoder_size("tinny"), ConfigError);
}

TEST(Decoder, IsReadBackFromWhatItWrites) {
  for (const std::string& size : decoder_sizes()) {
    const Json written = decoder_to_json(decoder_size(size));
    EXPECT_EQ(decoder_to_json(decoder_from_json(written, "model")), written);
  }
}

TEST(Decoder, IsAChainOfResidualAndDelta) {
  const TestModel model(
      build_model(parse_json(R"({"family": "decoder", "size": "tiny", "vocab": 64})", ""), {2, 0}));
  const Shape hidden{2, 256, 256};
  EXPECT_EQ(model.shape("embed.residual"), hidden);
  EXPECT_EQ(model.shape("body.3.residual"), hidden);
  EXPECT_EQ(model.shape("body.3.delta"), hidden);
  EXPECT_EQ(model.shape("loss"), Shape{1});
  // The first body has no delta; the others share one tape.
  const auto& blocks = model.graph().blocks;
  ASSERT_EQ(blocks.size(), 6u);
  EXPECT_NE(blocks[1].tape, blocks[2].tape);
  EXPECT_EQ(blocks[2].tape, blocks[4].tape);
}

TEST(Models, WithFp8HaveItInTheLinearsOfTheirBodiesAlone) {
  for (const std::string& family : model_families()) {
    for (const bool fp8 : {false, true}) {
      BuildOptions options;
      options.fp8 = fp8 ? Fp8Linears::kInputsKept : Fp8Linears::kOff;
      const TestModel model(build_model(Json{{"family", family}, {"size", "tiny"}}, options));
      for (const GraphBlock& block : model.graph().blocks) {
        const bool body = block.name.starts_with("body.");
        for (const TapeNode& node : block.tape->nodes()) {
          if (node.op->name != "linear") continue;
          EXPECT_EQ(node.attrs.integer("fp8", 0), body && fp8 ? 2 : 0) << block.name;
        }
      }
    }
  }
}

TEST(Decoder, NamesEveryRowOfEveryParameterOnce) {
  for (const char* section : {R"({"family": "decoder", "size": "tiny"})",
                              R"({"family": "decoder", "size": "tiny", "tied_embeddings": false,
                                  "kv_heads": 2, "qk_norm": true, "qkv_bias": true, "o_bias": true,
                                  "mlp_bias": true})"}) {
    BuiltModel built = build_model(parse_json(section, ""));
    const NameTable names = built.names;
    const TestModel model(std::move(built));
    EXPECT_EQ(uncovered(model, names), "") << section;
  }
  const NameTable names = decoder_hf_names(decoder_size("qwen2.5-0.5b"));
  const auto k = std::find_if(names.begin(), names.end(), [](const ExternalName& name) {
    return name.external == "model.layers.3.self_attn.k_proj.weight";
  });
  ASSERT_NE(k, names.end());
  EXPECT_EQ(k->parameter, "body.3.wqkv");
  EXPECT_EQ(k->first_row, 896);
  EXPECT_EQ(k->rows, 128);
}

TEST(Decoder, SeesNoLaterTokenAndStartsNearAUniformGuess) {
  TestModel model(build_model(
      parse_json(R"({"family": "decoder", "vocab": 50, "hidden": 16, "layers": 2, "heads": 2,
                     "kv_heads": 1, "max_positions": 6, "qk_norm": true})",
                 ""),
      {1, 0}));
  for (int i = 0; i < 6; ++i) {
    model.ids("batch.tokens")[i] = (7 * i + 3) % 50;
    model.ids("batch.targets")[i] = (7 * i + 10) % 50;
  }
  model.forward();
  // Logits have standard deviation 0.02 sqrt(16); the mean is over six rows.
  EXPECT_NEAR(*model.values("loss"), std::log(50.0), 0.15);
  const float* delta = model.values("body.1.delta");
  const std::vector<float> before(delta, delta + 6 * 16);
  model.ids("batch.tokens")[4] = 49;
  model.forward();
  for (size_t i = 0; i < 4 * 16; ++i) ASSERT_EQ(before[i], delta[i]);
  EXPECT_NE(before[5 * 16], delta[5 * 16]);
}

TEST(Decoder, HasTheLossOfPyTorchWithWeightsUnderHuggingFaceNames) {
  const Json golden = read_json_file("tests/models/golden/decoder.json");
  ASSERT_EQ(golden["cases"].size(), 4u);
  for (const Json& test : golden["cases"]) {
    BuiltModel built = build_model(test["model"], {2, 0});
    const NameTable names = built.names;
    TestModel model(std::move(built));
    set_golden_weights(model, names);
    for (size_t i = 0; i < golden["tokens"].size(); ++i) {
      model.ids("batch.tokens")[i] = golden["tokens"][i].get<int32_t>();
      model.ids("batch.targets")[i] = golden["targets"][i].get<int32_t>();
    }
    model.forward();
    // Values between operations are rounded to fp32; the golden ones are fp64.
    EXPECT_NEAR(*model.values("loss"), test["loss"].get<double>(), 3e-6) << test["name"];
  }
}

TEST(Decoder, RefusesSequencesBeyondItsPositions) {
  EXPECT_THROW(build_decoder(decoder_size("tiny"), 257), ConfigError);
  EXPECT_THROW(build_decoder(decoder_size("tiny"), 0), ConfigError);
}

}  // namespace
}  // namespace vitrine

// Shapes by name: their parameters against published counts, the engine's own models, refusals.
#include "plan/model_shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "core/error.h"
#include "core/json.h"
#include "models/registry.h"
#include "plan/parameter_count.h"
#include "schedule/parameters.h"
#include "support/temporary_folder.h"
#include "support/text_files.h"

namespace vitrine {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string error_of(const std::string& name) {
  try {
    model_shape(name);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

struct Published {
  const char* name;
  int64_t parameters;
};

// Elements of the published safetensors files (Hugging Face's count of each repository).
TEST(ModelShape, HasExactlyTheElementsOfPublishedCheckpoints) {
  const Published all[] = {
      {"gpt2", 124'439'808},  // with its 1024 positions, without the tied head
      {"gpt2-xl", 1'557'611'200},
      {"opt-125m", 125'239'296},
      {"opt-1.3b", 1'315'758'080},
      {"opt-6.7b", 6'658'473'984},
      {"bloom-560m", 559'214'592},
      {"bloom-7b1", 7'069'016'064},
      {"bloom-176b", 176'247'271'424},
      {"gpt-neox-20b", 20'554'567'680},  // the model card's n_parameters
      {"pythia-12b", 11'846'072'320},
      {"llama-7b", 6'738'415'616},
      {"llama-13b", 13'015'864'320},
      {"llama-30b", 32'528'943'616},
      {"llama-65b", 65'285'660'672},
      {"llama2-70b", 68'976'648'192},
      {"llama3-8b", 8'030'261'248},
      {"llama3-70b", 70'553'706'496},
      {"llama3-405b", 405'853'388'800},
      {"mistral-7b", 7'241'732'096},
      {"mixtral-8x7b", 46'702'792'704},
      {"mixtral-8x22b", 140'620'634'112},
      {"qwen2.5-0.5b", 494'032'768},
      {"qwen2.5-1.5b", 1'543'714'304},
      {"qwen2.5-3b", 3'085'938'688},
      {"qwen2.5-7b", 7'615'616'512},
      {"qwen2.5-14b", 14'770'033'664},
      {"qwen2.5-32b", 32'763'876'352},
      {"qwen2.5-72b", 72'706'203'648},
      {"qwen3-0.6b", 596'049'920},
      {"qwen3-8b", 8'190'735'360},
      {"qwen3-32b", 32'762'123'264},
      {"qwen3-30b-a3b", 30'532'122'624},
      {"qwen3-235b-a22b", 235'093'634'560},
      {"gpt-oss-20b", 20'914'757'184},
      {"gpt-oss-120b", 116'829'156'672},
      {"llava-7b", 7'063'427'072},
      {"wan-14b", 14'288'491'584},
  };
  for (const Published& each : all) {
    EXPECT_EQ(model_shape(each.name).parameters(), each.parameters) << each.name;
  }
}

// The 671,026,419,200 elements of the main model include 256 routing corrections in each of 58
// layers, which no gradient reaches. The files' 684,489,830,400 in bf16 and fp8 are without those,
// and hold copies of both tables for the next-token layer, which shares them.
TEST(ModelShape, CountsDeepSeekV3WithAndWithoutItsNextTokenLayer) {
  EXPECT_EQ(model_shape("deepseek-v3").parameters(), 671'026'419'200 - 58 * 256);
  EXPECT_EQ(model_shape("deepseek-v3-mtp").parameters(),
            684'489'830'400 - 2 * int64_t{129280} * 7168);
}

// GPT-3 (arXiv 2005.14165), table D.1, in millions (its 1.3B row has 24 heads of 128, which are not
// 2048 wide; 16 are taken, and 0.33 % are missing); Megatron-LM (arXiv 2104.04473), table 1, in
// tenths of billions.
TEST(ModelShape, CountsTheTablesOfPapersToTheirDigits) {
  const std::pair<const char*, double> gpt3[] = {{"gpt-350m", 356},
                                                 {"gpt-760m", 760},
                                                 {"gpt-1.3b", 1320},
                                                 {"gpt-2.7b", 2650},
                                                 {"gpt-6.7b", 6660},
                                                 {"gpt-13b", 12850},
                                                 {"gpt-175b", 174600}};
  for (const auto& [name, millions] : gpt3) {
    const auto count = static_cast<double>(model_shape(name).parameters()) / 1e6;
    EXPECT_NEAR(count / millions, 1, 0.0035) << name;
  }
  const std::pair<const char*, double> megatron[] = {{"gpt-1.7b", 1.7},
                                                     {"gpt-3.6b", 3.6},
                                                     {"gpt-7.5b", 7.5},
                                                     {"gpt-18b", 18.4},
                                                     {"gpt-39b", 39.1},
                                                     {"gpt-76b", 76.1},
                                                     {"gpt-145b", 145.6},
                                                     {"gpt-310b", 310.1},
                                                     {"gpt-530b", 529.6},
                                                     {"gpt-1t", 1008.0}};
  for (const auto& [name, billions] : megatron) {
    const auto count = static_cast<double>(model_shape(name).parameters()) / 1e9;
    EXPECT_NEAR(count, billions, 0.051) << name;
  }
}

// Parameters in thousands of MosaicML's benchmark table; positions are the sequence's.
TEST(ModelShape, CountsMptAsItsBenchmarkTableDoes) {
  const std::tuple<const char*, int64_t, double> rows[] = {{"mpt-125m", 65536, 0.17407},
                                                           {"mpt-125m", 2048, 0.125311},
                                                           {"mpt-1b", 2048, 1.31595},
                                                           {"mpt-7b", 2048, 6.65886},
                                                           {"mpt-13b", 2048, 12.854},
                                                           {"mpt-30b", 2048, 29.9752},
                                                           {"mpt-70b", 2048, 64.8624}};
  for (const auto& [name, positions, billions] : rows) {
    ModelShape model = model_shape(name);
    model.positions = positions;
    EXPECT_NEAR(static_cast<double>(model.parameters()) / 1e9 / billions, 1, 5e-6) << name;
  }
}

// Reports of the models: Mixtral 12.9 billion, DeepSeek-V3 37 (37,552,282,624 with the tables),
// Qwen3-30B-A3B 3.3, Qwen3-235B-A22B 22.2, gpt-oss 3.6 and 5.1 (its card leaves the input table
// out).
TEST(ModelShape, CountsWhatATokenPassesThrough) {
  const auto active = [](const char* name) {
    return static_cast<double>(model_shape(name).active_parameters()) / 1e9;
  };
  EXPECT_NEAR(active("mixtral-8x7b"), 12.9, 0.05);
  EXPECT_EQ(model_shape("deepseek-v3").active_parameters(), 37'552'282'624);
  EXPECT_EQ(model_shape("qwen3-30b-a3b").active_parameters(), 3'353'032'704);
  EXPECT_NEAR(active("qwen3-235b-a22b"), 22.2, 0.05);
  EXPECT_NEAR(active("gpt-oss-20b") - 201088 * 2880 / 1e9, 3.6, 0.05);
  EXPECT_NEAR(active("gpt-oss-120b") - 201088 * 2880 / 1e9, 5.1, 0.05);
  EXPECT_EQ(model_shape("llama3-8b").active_parameters(), model_shape("llama3-8b").parameters());
}

TEST(ModelShape, OfAFrozenTowerLeavesItOut) {
  ModelShape model = model_shape("llava-7b");
  const int64_t all = model.parameters();
  model.tower_frozen = true;
  EXPECT_EQ(all - model.parameters(), tower_parameters(model));
}

int64_t engine_count(const std::string& section) {
  const BuiltModel built = build_model(parse_json(section, "model"));
  return make_parameter_table(built.model, Strategy{}).total_elements;
}

// The engine's parameter tables are built from its blocks, not from shapes.
TEST(ModelShape, OfTheEngineHasTheEnginesOwnParameters) {
  const char* sections[] = {
      R"({"family": "decoder", "size": "tiny"})",
      R"({"family": "decoder", "size": "tiny", "qkv_bias": true, "o_bias": true, "mlp_bias": true,
          "qk_norm": true, "kv_heads": 2, "tied_embeddings": false})",
      R"({"family": "vit", "size": "tiny"})",
      R"({"family": "vit", "size": "tiny", "pool": "mean", "patch_bias": false, "pre_norm": true})",
      R"({"family": "vit", "size": "clip-vit-l14-336"})",
      R"({"family": "world_model", "size": "tiny"})",
      R"({"family": "world_model", "size": "demo", "encoder": "linear", "encoder_width": 48,
          "head": "residual", "positions": "rope", "qk_norm": true})",
      R"({"family": "world_model", "size": "demo", "encoder": "linear"})",
      R"({"family": "world_model", "size": "1b"})",
  };
  const TemporaryFolder folder;
  for (const char* section : sections) {
    const std::string path = write_file(folder / "model.json", section);
    const ModelShape model = model_shape(path);
    EXPECT_EQ(model.parameters(), engine_count(section)) << section;
    EXPECT_EQ(engine_count(model.engine_section), engine_count(section)) << section;
  }
}

TEST(ModelShape, OfABuiltInNameOfTheEngineCarriesItsSection) {
  const ModelShape world = model_shape("world-1b");
  EXPECT_EQ(world.family, "world_model");
  EXPECT_EQ(world.frames, 16);
  EXPECT_EQ(world.patches, 256);
  EXPECT_FALSE(world.engine_section.empty());
  EXPECT_FALSE(model_shape("vit-b16").engine_section.empty());
  EXPECT_TRUE(model_shape("llama3-8b").engine_section.empty());
}

TEST(ModelShape, ComesFromARunFileToo) {
  const TemporaryFolder folder;
  const std::string path = write_file(
      folder / "run.json", R"({"model": {"family": "decoder", "size": "tiny"}, "train": {}})");
  EXPECT_EQ(model_shape(path).stack.layers, 4);
}

TEST(BuiltInShapes, AreValidUniqueAndSayWhereTheyAreFrom) {
  std::set<std::string> seen;
  for (const std::string& name : built_in_shapes()) {
    EXPECT_TRUE(seen.insert(name).second) << name;
    const ModelShape model = model_shape(name);
    EXPECT_EQ(model.name, name);
    EXPECT_THAT(model.source, HasSubstr("built in: "));
    EXPECT_GT(model.parameters(), 0);
  }
  EXPECT_EQ(model_shape("LLaMA3-8B").name, "llama3-8b");
}

TEST(ModelShape, OfAnUnknownNameSaysTheNearestAndAll) {
  EXPECT_THAT(error_of("lama3-8b"),
              AllOf(HasSubstr("did you mean \"llama3-8b\""), HasSubstr("world-1b")));
  EXPECT_THAT(error_of(""), HasSubstr("no model is named"));
  EXPECT_THROW(model_shape("/nowhere/config.json"), IoError);
}

TEST(ModelShape, RefusesFilesWithoutAModel) {
  const TemporaryFolder folder;
  EXPECT_THAT(error_of(write_file(folder / "a.json", "{\"zero_optimization\": {}}")),
              HasSubstr("no model in it"));
  EXPECT_THAT(error_of(write_file(folder / "b.json", "[1]")), HasSubstr("expected an object"));
  EXPECT_THAT(error_of(write_file(folder / "c.json", "{")), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of(write_file(folder / "d.json", R"({"model": 3})")), HasSubstr("model"));
}

std::string refusal(void (*change)(ModelShape&), const char* name) {
  ModelShape model = model_shape(name);
  change(model);
  try {
    model.validate();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(ModelShape, IsCheckedFieldByField) {
  EXPECT_THAT(refusal([](ModelShape& m) { m.stack.layers = 0; }, "llama3-8b"),
              HasSubstr("layers is at least 1, got 0"));
  EXPECT_THAT(refusal([](ModelShape& m) { m.stack.hidden = -4; }, "llama3-8b"),
              HasSubstr("hidden is at least 1, got -4"));
  EXPECT_THAT(refusal([](ModelShape& m) { m.stack.kv_heads = 5; }, "llama3-8b"),
              HasSubstr("heads (32) must be a multiple of kv_heads (5)"));
  EXPECT_THAT(refusal([](ModelShape& m) { m.vocab = 0; }, "llama3-8b"), HasSubstr("vocab"));
  EXPECT_THAT(refusal([](ModelShape& m) { m.stack.experts_per_token = 9; }, "mixtral-8x7b"),
              HasSubstr("at most experts (8), got 9"));
  EXPECT_THAT(refusal([](ModelShape& m) { m.stack.dense_layers = 62; }, "deepseek-v3"),
              HasSubstr("dense_layers"));
  EXPECT_THAT(refusal([](ModelShape& m) { m.tower.heads = 0; }, "llava-7b"),
              HasSubstr("tower.heads"));
  EXPECT_THAT(refusal([](ModelShape& m) { m.family = "rnn"; }, "gpt2"), HasSubstr("family is one"));
  EXPECT_THAT(refusal([](ModelShape& m) { m.frames = 0; }, "world-tiny"), HasSubstr("frames"));
  EXPECT_THAT(refusal([](ModelShape& m) { m.stack.dropout = 1; }, "gpt2"), HasSubstr("dropout"));
}

}  // namespace
}  // namespace vitrine

// The vision transformer: published parameter counts, shapes, CLIP names; and the registry.
#include "models/vit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "core/json.h"
#include "models/forward.h"

namespace vitrine {
namespace {

using testing::HasSubstr;

int64_t parameters_without_classifier(const std::string& size) {
  const VitConfig config = vit_size(size);
  const Model model = build_vit(config);
  return make_parameter_table(model, Strategy{}).total_elements - config.classes * config.hidden;
}

// CLIPVisionModel of the published towers; ViT-B/16 of torchvision without its classifier.
TEST(Vit, HasThePublishedParameterCounts) {
  EXPECT_EQ(parameters_without_classifier("clip-vit-b32"), 87'456'000);
  EXPECT_EQ(parameters_without_classifier("clip-vit-l14"), 303'179'776);
  EXPECT_EQ(parameters_without_classifier("vit-b16"), 86'567'656 - 1000 * 768 - 1000);
}

TEST(Vit, CompilesWithBothPoolingsAndStartsNearAUniformGuess) {
  for (const char* pool : {"class_token", "mean"}) {
    TestModel model(build_model(
        parse_json(std::string(R"({"family": "vit", "size": "tiny", "height": 16, "width": 24,
                                   "pool": ")") +
                       pool + "\"}",
                   ""),
        {3, 0}));
    const int64_t tokens = std::string(pool) == "mean" ? 6 : 7;
    EXPECT_EQ(model.shape("stem.residual"), (Shape{3, tokens, 64}));
    EXPECT_EQ(model.shape("body.1.delta"), (Shape{3, tokens, 64}));
    for (int64_t i = 0; i < model.elements("batch.frames"); ++i) {
      model.values("batch.frames")[i] = static_cast<float>(i % 17) / 16;
    }
    for (int i = 0; i < 3; ++i) model.ids("batch.labels")[i] = i;
    model.forward();
    EXPECT_NEAR(*model.values("loss"), std::log(10.0), 0.5);
    EXPECT_NE(*model.values("loss"), 0);
  }
}

TEST(Vit, NamesEveryRowOfAClipTowerOnce) {
  BuiltModel built = build_model(parse_json(
      R"({"family": "vit", "size": "clip-vit-b32", "hidden": 32, "heads": 2, "layers": 2})", ""));
  const NameTable names = built.names;
  const TestModel model(std::move(built));
  EXPECT_EQ(uncovered(model, names, {"head.weight"}), "");
  std::vector<std::string> external;
  for (const ExternalName& name : names) external.push_back(name.external);
  EXPECT_THAT(external, testing::Contains("vision_model.pre_layrnorm.weight"));
  EXPECT_THAT(external, testing::Contains("vision_model.encoder.layers.1.mlp.fc2.bias"));
}

TEST(Vit, HasTheLossOfPyTorchWithClipWeights) {
  const Json golden = read_json_file("tests/models/golden/vit.json");
  BuiltModel built = build_model(golden["model"], {2, 0});
  NameTable names = built.names;
  TestModel model(std::move(built));
  names.push_back({"head.weight", 0, 5, "head.weight", {5, 12}});
  set_golden_weights(model, names);
  for (int64_t i = 0; i < model.elements("batch.frames"); ++i) {
    model.values("batch.frames")[i] =
        static_cast<float>(std::fmod(0.37 * static_cast<double>(i), 1));
  }
  for (size_t i = 0; i < 2; ++i) model.ids("batch.labels")[i] = golden["labels"][i].get<int32_t>();
  model.forward();
  // Values between operations are rounded to fp32; the golden one is fp64.
  EXPECT_NEAR(*model.values("loss"), golden["loss"].get<double>(), 3e-6);
}

TEST(Vit, RefusesWhatDoesNotFit) {
  EXPECT_THROW(vit_from_json(parse_json(R"({"size": "tiny", "height": 33})", ""), "model"),
               ConfigError);
  EXPECT_THROW(vit_from_json(parse_json(R"({"size": "tiny", "heads": 3})", ""), "model"),
               ConfigError);
  EXPECT_THROW(vit_from_json(parse_json(R"({"size": "tiny", "gelu": "relu"})", ""), "model"),
               ConfigError);
  EXPECT_THROW(vit_from_json(parse_json(R"({"size": "tiny", "poool": "mean"})", ""), "model"),
               ConfigError);
  for (const std::string& size : vit_sizes()) {
    const Json written = vit_to_json(vit_size(size));
    EXPECT_EQ(vit_to_json(vit_from_json(written, "model")), written);
  }
}

TEST(ModelRegistry, NamesTheFamiliesItKnows) {
  const auto error = [](const std::string& text) -> std::string {
    try {
      build_model(parse_json(text, ""));
    } catch (const Error& caught) {
      return caught.what();
    }
    return "";
  };
  EXPECT_THAT(error(R"({"size": "tiny"})"), HasSubstr("decoder, vit, world_model"));
  EXPECT_THAT(error(R"({"family": "decodr"})"), HasSubstr("did you mean \"decoder\""));
  EXPECT_THAT(error(R"({"hf_config": "no/such/config.json"})"), HasSubstr("no/such/config.json"));
  EXPECT_THAT(error(R"("decoder")"), HasSubstr("expected an object"));
}

TEST(ModelRegistry, DescribesBatchesAndUnits) {
  const BuiltModel lm = build_model(
      parse_json(R"({"family": "decoder", "size": "tiny", "sequence_length": 32})", ""), {4, 0});
  EXPECT_EQ(lm.model.unit, "tokens");
  EXPECT_EQ(lm.model.units_per_sample, 32);
  EXPECT_EQ(lm.batch[0].second.shape, (Shape{4, 32}));
  EXPECT_EQ(parse_json(lm.resolved, "")["hidden"], 256);
  const BuiltModel world =
      build_model(parse_json(R"({"family": "world_model", "size": "tiny"})", ""), {2, 3});
  EXPECT_EQ(world.model.unit, "frames");
  EXPECT_EQ(world.clip_frames, 7);
  EXPECT_EQ(world.batch[0].second.shape, (Shape{2, 7, 24, 24, 3}));
  EXPECT_EQ(parse_json(world.resolved, "")["rollout_steps"], 3);
}

}  // namespace
}  // namespace vitrine

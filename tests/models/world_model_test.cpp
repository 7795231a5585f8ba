// The world model: shapes, the untrained copy, causality, action alignment and the unrolled passes.
#include "models/world_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/json.h"
#include "core/philox.h"
#include "models/forward.h"

namespace vitrine {
namespace {

using testing::HasSubstr;

// Four patches a frame: small enough for the reference backend.
TestModel make(const std::string& extra, int64_t rollout_steps = 1) {
  return TestModel(build_model(
      parse_json(R"({"family": "world_model", "height": 4, "width": 4, "patch": 2, "hidden": 16,
                     "layers": 2, "heads": 2, "window": 3, "action_count": 4)" +
                     extra + "}",
                 ""),
      {1, rollout_steps}));
}

void fill_batch(TestModel& model) {
  const Philox random(5, 1);
  for (int64_t i = 0; i < model.elements("batch.frames"); ++i) {
    model.values("batch.frames")[i] = static_cast<float>(random.uniform(static_cast<uint64_t>(i)));
  }
  for (int64_t i = 0; i < model.elements("batch.actions"); ++i) {
    model.ids("batch.actions")[i] = static_cast<int32_t>(i % 4);
  }
}

// w_out starts at zero, which hides everything before it.
void open_head(TestModel& model) {
  std::vector<float>& w = model.parameter("predict.w_out");
  initial_values(Init::normal(0.3), 3, "w_out", 0, static_cast<int64_t>(w.size()), w.data());
}

std::vector<float> run(TestModel& model, const std::string& name) {
  model.forward();
  return {model.values(name), model.values(name) + model.elements(name)};
}

// Frames of a [1, T, Y, X, 3] value that differ.
std::vector<int> changed_frames(const std::vector<float>& a, const std::vector<float>& b) {
  std::vector<int> changed;
  const size_t frame = 4 * 4 * 3;
  for (size_t t = 0; t * frame < a.size(); ++t) {
    if (!std::equal(a.begin() + static_cast<ptrdiff_t>(t * frame),
                    a.begin() + static_cast<ptrdiff_t>((t + 1) * frame),
                    b.begin() + static_cast<ptrdiff_t>(t * frame))) {
      changed.push_back(static_cast<int>(t));
    }
  }
  return changed;
}

int64_t parameter_count(const std::string& size) {
  const Model model = build_world_model(world_model_size(size));
  return make_parameter_table(model, Strategy{}).total_elements;
}

TEST(WorldModel, HasTheParametersOfItsSizes) {
  // 16 L d^2 for the blocks, within what the SwiGLU rounding, tables and ends add.
  EXPECT_NEAR(static_cast<double>(parameter_count("tiny")), 0.145e6, 0.005e6);
  EXPECT_NEAR(static_cast<double>(parameter_count("demo")), 0.65e6, 0.06e6);
  EXPECT_NEAR(static_cast<double>(parameter_count("small")), 106e6, 1e6);
  EXPECT_NEAR(static_cast<double>(parameter_count("1b")), 1.03e9, 0.01e9);
  EXPECT_NEAR(static_cast<double>(parameter_count("8b")), 8.06e9, 0.03e9);
}

TEST(WorldModel, UntrainedResidualHeadCopiesTheLastFrameExactly) {
  TestModel model = make(R"(, "head": "residual")");
  fill_batch(model);
  const std::vector<float> prediction = run(model, "prediction");
  ASSERT_EQ(model.shape("prediction"), (Shape{1, 3, 4, 4, 3}));
  const float* frames = model.values("batch.frames");
  double copy_error = 0;
  for (size_t i = 0; i < prediction.size(); ++i) {
    ASSERT_EQ(prediction[i], frames[i]);
    copy_error += std::pow(frames[i] - frames[i + 48], 2) / static_cast<double>(prediction.size());
  }
  EXPECT_NEAR(*model.values("loss"), copy_error, 1e-6);
}

TEST(WorldModel, UntrainedSigmoidHeadIsNearTheLastFrame) {
  TestModel model = make("");
  for (int64_t i = 0; i < model.elements("batch.frames"); ++i) {
    model.values("batch.frames")[i] = static_cast<float>(i % 48) / 47;
  }
  const std::vector<float> prediction = run(model, "prediction");
  for (size_t i = 0; i < prediction.size(); ++i) {
    ASSERT_NEAR(prediction[i], model.values("batch.frames")[i], 0.07);
  }
}

TEST(WorldModel, PredictionOfAFrameSeesNoLaterFrame) {
  for (const char* extra :
       {"", R"(, "positions": "rope", "qk_norm": true)", R"(, "encoder": "linear")"}) {
    TestModel model = make(extra);
    fill_batch(model);
    open_head(model);
    const std::vector<float> before = run(model, "prediction");
    model.values("batch.frames")[1 * 48 + 5] += 0.5f;
    EXPECT_EQ(changed_frames(before, run(model, "prediction")), (std::vector<int>{1, 2})) << extra;
  }
}

// Action t drives frame t -> t + 1, and output t is the prediction of frame t + 1.
TEST(WorldModel, ActionTReachesThePredictionOfFrameTPlusOneAndNoEarlier) {
  TestModel model = make("");
  fill_batch(model);
  open_head(model);
  const std::vector<float> before = run(model, "prediction");
  for (const auto& [action, frames] : std::vector<std::pair<int, std::vector<int>>>{
           {0, {0, 1, 2}}, {1, {1, 2}}, {2, {2}}, {3, {}}}) {
    int32_t& value = model.ids("batch.actions")[action];
    const int32_t old = value;
    value = (value + 1) % 4;
    EXPECT_EQ(changed_frames(before, run(model, "prediction")), frames) << "action " << action;
    value = old;
  }
}

TEST(WorldModel, LaterPassesUseTheFirstsParameters) {
  const TestModel one = make("", 1), three = make("", 3);
  EXPECT_EQ(one.table().total_elements, three.table().total_elements);
  ASSERT_EQ(one.table().units.size(), three.table().units.size());
  for (const Unit& unit : three.table().units) {
    EXPECT_EQ(unit.users.size(), 3u) << unit.name;
    EXPECT_EQ(unit.name.find('@'), std::string::npos);
  }
  EXPECT_EQ(three.shape("batch.frames"), (Shape{1, 6, 4, 4, 3}));
}

TEST(WorldModel, PassJSeesPredictionsAndTargetsJFramesLater) {
  TestModel model = make(R"(, "rollout_weight": 0.5)", 3);
  fill_batch(model);
  open_head(model);
  model.forward();
  const size_t patches = 3 * 4 * 12, frame = 4 * 12;
  const float* first = model.values("predict.prediction");
  const float* window = model.values("window@1.window");
  const float* encoded = model.values("encode.window");
  // The window of pass 1: true frames 1 and 2, then the prediction of frame 3.
  EXPECT_TRUE(std::equal(window, window + 2 * frame, encoded + frame));
  EXPECT_TRUE(std::equal(window + 2 * frame, window + patches, first + 2 * frame));
  // Its targets are frames 2, 3, 4, the first two of which are targets 1 and 2 of pass 0.
  EXPECT_TRUE(std::equal(model.values("encode.target.1"),
                         model.values("encode.target.1") + 2 * frame,
                         model.values("encode.target.0") + frame));
  // Action 4 drives frame 4 -> 5: the last output of pass 2 alone.
  std::vector<float> second(model.values("predict@1.prediction"),
                            model.values("predict@1.prediction") + patches);
  std::vector<float> third(model.values("predict@2.prediction"),
                           model.values("predict@2.prediction") + patches);
  model.ids("batch.actions")[4] = 2;
  model.forward();
  EXPECT_TRUE(std::equal(second.begin(), second.end(), model.values("predict@1.prediction")));
  const float* now = model.values("predict@2.prediction");
  EXPECT_TRUE(std::equal(now, now + 2 * frame, third.begin()));
  EXPECT_FALSE(std::equal(now, now + patches, third.begin()));
  double weights = 0;
  for (const LossTerm& loss : model.graph().model->losses()) weights += loss.weight;
  EXPECT_DOUBLE_EQ(weights, 1);
  EXPECT_DOUBLE_EQ(model.graph().model->losses()[0].weight, 0.5);
}

TEST(WorldModel, SendsGradientsBackThroughTheRolloutButNotThroughThePicture) {
  const TestModel model = make("", 2);
  const Graph& graph = model.graph();
  const Edge& prediction = graph.edges[static_cast<size_t>(graph.edge("predict.prediction"))];
  std::vector<std::string> readers;
  for (const int block : prediction.grad_consumers) {
    readers.push_back(graph.blocks[static_cast<size_t>(block)].name);
  }
  EXPECT_THAT(readers, testing::UnorderedElementsAre("loss", "window@1"));
}

TEST(WorldModel, ReadsOverridesAndRefusesWhatDoesNotFit) {
  const auto error = [](const std::string& text) -> std::string {
    try {
      world_model_from_json(parse_json(text, ""), "model");
    } catch (const ConfigError& caught) {
      return caught.what();
    }
    return "";
  };
  EXPECT_THAT(error(R"({"size": "tiny", "height": 25})"), HasSubstr("28 x 24"));
  EXPECT_THAT(error(R"({"size": "tiny", "head": "sigmoid"})"), HasSubstr("gated_sigmoid"));
  EXPECT_THAT(error(R"({"size": "tiny", "windows": 3})"), HasSubstr("did you mean \"window\""));
  EXPECT_THAT(error(R"({"size": "teny"})"), HasSubstr("tiny"));
  EXPECT_THAT(error(R"({"hidden": 8})"), HasSubstr("is at least 1"));
  for (const std::string& size : world_model_sizes()) {
    const Json written = world_model_to_json(world_model_size(size));
    EXPECT_EQ(world_model_to_json(world_model_from_json(written, "model")), written);
  }
}

}  // namespace
}  // namespace vitrine

// A trained encoder does not collapse: predictions go on differing between clips.
#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "core/json.h"
#include "data/balls.h"
#include "data/loader.h"
#include "models/registry.h"
#include "support/scratch.h"
#include "train/world_eval.h"

namespace vitrine {
namespace {

// The balls world at half the demo's size, a small model, 100 steps.
class TrainedEncoder : public ::testing::Test {
 protected:
  TrainedEncoder() {
    BallsOptions balls;
    balls.height = balls.width = 12;
    balls.radius = 1.5;
    balls.minimum_speed = 0.4;
    balls.maximum_speed = 0.8;
    balls.acceleration = 0.22;
    balls.episodes = 64;
    balls.episode_frames = 16;
    write_balls(balls, folder_ / "train");
    balls.split = "held-out";
    balls.episodes = 32;
    write_balls(balls, folder_ / "held_out");
    train_ = std::make_shared<const FrameCache>(FrameCache::open(folder_ / "train"));
    held_out_ = std::make_shared<const FrameCache>(FrameCache::open(folder_ / "held_out"));
    const Json section =
        parse_json(R"({"family": "world_model", "size": "tiny", "height": 12, "width": 12,
                                        "hidden": 32, "heads": 2, "window": 3, "encoder": "linear"})",
                   "model");
    BuiltModel built = build_model(section, {kMicroBatch, 0});
    config_ = world_model_from_json(parse_json(built.resolved, "model"), "model");
    EngineOptions options;
    options.strategy.micro_batch = kMicroBatch;
    options.optimizer.lr = 4e-3;
    options.optimizer.weight_decay = 0.01;
    options.schedule.warmup_steps = 10;
    options.schedule.total_steps = kSteps;
    engine_ = initialize(std::move(built.model), built.batch, options);
  }

  WorldEval evaluate() {
    WorldEvalOptions options;
    options.clips = 32;
    options.horizon = 1;
    return evaluate_world(*engine_, config_, *held_out_, options);
  }

  void train() {
    const ClipDataset dataset(train_, config_.clip_frames());
    LoaderOptions options;
    options.layout.micro_batch = kMicroBatch;
    BatchLoader loader(dataset, options, engine_->ledger());
    while (engine_->steps_done() < kSteps) {
      std::shared_ptr<const Batch> batch;
      engine_->train_step([&](int micro) -> BatchViews {
        batch = loader.next(engine_->steps_done(), micro);
        return {{"frames", batch->view("frames")}, {"actions", batch->view("actions")}};
      });
    }
  }

  // Over held-out clips, of the frames that are to be predicted.
  double true_std() const {
    const ClipDataset dataset(held_out_, 1);
    const int64_t pixels = 12 * 12 * 3, clips = 32;
    std::vector<float> frame(static_cast<size_t>(pixels));
    std::vector<double> sum(static_cast<size_t>(pixels)), squares(static_cast<size_t>(pixels));
    int32_t action = 0;
    const std::vector<TensorView> views = {{frame.data(), {1, 12, 12, 3}, DType::kF32},
                                           {&action, {1}, DType::kI32}};
    for (int64_t c = 0; c < clips; ++c) {
      dataset.fill(c * 16 + config_.window, 0, views);
      for (size_t p = 0; p < frame.size(); ++p) {
        sum[p] += static_cast<double>(frame[p]);
        squares[p] += static_cast<double>(frame[p]) * static_cast<double>(frame[p]);
      }
    }
    double variance = 0;
    for (size_t p = 0; p < frame.size(); ++p) {
      variance += squares[p] / clips - sum[p] / clips * (sum[p] / clips);
    }
    return std::sqrt(variance / static_cast<double>(pixels));
  }

  float* parameter(const std::string& name, int64_t* elements) {
    const ParameterTable& table = engine_->store().table();
    for (int u = 0; u < static_cast<int>(table.units.size()); ++u) {
      for (const UnitParameter& p : table.units[static_cast<size_t>(u)].parameters) {
        if (p.name != name) continue;
        *elements = p.elements;
        return engine_->store().state(u, OptimizerState::kMaster).as<float>() + p.offset;
      }
    }
    throw ConfigError("no parameter " + name);
  }

  static constexpr int64_t kMicroBatch = 8, kSteps = 100;
  ScratchFolder folder_;
  std::shared_ptr<const FrameCache> train_, held_out_;
  WorldModelConfig config_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(TrainedEncoder, KeepsTheVarianceOfPredictionsOverClips) {
  int64_t elements = 0;
  const float* weights = parameter("stem.w_encode", &elements);
  const std::vector<float> before(weights, weights + elements);
  train();
  EXPECT_NE(before, std::vector<float>(weights, weights + elements))
      << "the encoder was not trained";
  const WorldEval after = evaluate();
  const double truth = true_std();
  EXPECT_GT(truth, 0.05);
  EXPECT_GT(after.prediction_std, 0.5 * truth);
  EXPECT_LT(after.prediction_std, 2 * truth);
  // And it has learned: better than repeating the last frame, and actions matter.
  EXPECT_GT(after.psnr, after.psnr_copy);
}

TEST_F(TrainedEncoder, IsSeenToCollapseWhenPredictionsNoLongerDependOnTheClip) {
  int64_t elements = 0;
  float* gain = parameter("predict.gain", &elements);
  std::fill_n(gain, elements, 0.0f);
  EXPECT_LT(evaluate().prediction_std, 1e-3);
}

}  // namespace
}  // namespace vitrine

// Imagined clips begin with the truth and follow the model.
#include "train/imagine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "core/error.h"
#include "core/json.h"
#include "data/balls.h"
#include "models/registry.h"
#include "support/temporary_folder.h"

namespace vitrine {
namespace {

class Imagine : public testing::Test {
 protected:
  void SetUp() override {
    BallsOptions balls;
    balls.episodes = 1;
    balls.episode_frames = 12;
    write_balls(balls, folder_ / "held_out");
    cache_ = std::make_unique<FrameCache>(FrameCache::open(folder_ / "held_out"));
    // The untrained residual head predicts the frame it sees, exactly.
    BuiltModel built = build_model(Json{{"family", "world_model"},
                                        {"size", "tiny"},
                                        {"action_count", 5},
                                        {"head", "residual"},
                                        {"height", cache_->height()},
                                        {"width", cache_->width()}});
    config_ = world_model_from_json(parse_json(built.resolved, "model"), "model");
    EngineOptions options;
    engine_ = initialize(std::move(built.model), built.batch, options);
  }
  TemporaryFolder folder_;
  std::unique_ptr<FrameCache> cache_;
  WorldModelConfig config_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(Imagine, BeginsWithTheTruthAndAnUntrainedModelRepeatsTheLastFrame) {
  const Imagined out = imagine(*engine_, config_, *cache_, 2, {1, 4, 0});
  EXPECT_EQ(out.context, config_.window);
  EXPECT_EQ(out.frames, config_.window + 3);
  ASSERT_EQ(out.actions.size(), static_cast<size_t>(out.frames - 1));
  EXPECT_EQ(std::vector<int32_t>(out.actions.end() - 3, out.actions.end()),
            (std::vector<int32_t>{1, 4, 0}));
  const int64_t frame = cache_->frame_bytes();
  ASSERT_EQ(out.pixels.size(), static_cast<size_t>(out.frames * frame));
  for (int64_t t = 0; t < out.frames; ++t) {
    const uint8_t* truth = cache_->frame(2 + std::min(t, config_.window - 1));
    for (int64_t i = 0; i < frame; ++i) {
      ASSERT_NEAR(out.pixels[static_cast<size_t>(t * frame + i)] * 255, truth[i], 1e-3) << t;
    }
  }
}

TEST_F(Imagine, RefusesUnknownActionsAndClips) {
  EXPECT_THROW(imagine(*engine_, config_, *cache_, 0, {5}), ConfigError);
  EXPECT_THROW(imagine(*engine_, config_, *cache_, 0, {-1}), ConfigError);
  EXPECT_THROW(imagine(*engine_, config_, *cache_, 12, {1}), ConfigError);
  EXPECT_THROW(imagine(*engine_, config_, *cache_, -1, {1}), ConfigError);
}

TEST_F(Imagine, WritesBothPictures) {
  const Imagined out = imagine(*engine_, config_, *cache_, 0, {1, 2});
  write_imagined(out, folder_ / "pictures");
  EXPECT_EQ(read_text_file(folder_ / "pictures/imagined.png").substr(1, 3), "PNG");
  EXPECT_EQ(read_text_file(folder_ / "pictures/imagined.gif").substr(0, 6), "GIF89a");
  EXPECT_THROW(write_imagined(out, "/proc/none"), IoError);
}

}  // namespace
}  // namespace vitrine

// Rollout pictures: the right frames in the right cells, bordered by what the model was given.
#include "media/rollout_picture.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace vitrine {
namespace {

// Three frames of 2x2: truth rises in red, the model says the same in green.
class RolloutPicture : public testing::Test {
 protected:
  void SetUp() override {
    for (int t = 0; t < 3; ++t) {
      for (int i = 0; i < 4; ++i) {
        const float value = 0.2f * static_cast<float>(t + 1);
        truth_.insert(truth_.end(), {value, 0.0f, 0.0f});
        prediction_.insert(prediction_.end(), {0.0f, value, 0.0f});
      }
    }
    rollout_ = {truth_.data(), prediction_.data(), 3, 2, 2, 1};
    style_.scale = 10;
  }
  int64_t count(const Picture& picture, Colour colour) const {
    int64_t found = 0;
    for (int64_t y = 0; y < picture.height; ++y) {
      for (int64_t x = 0; x < picture.width; ++x) found += picture.pixel(y, x) == colour;
    }
    return found;
  }
  std::vector<float> truth_, prediction_;
  Rollout rollout_;
  RolloutStyle style_;
};

TEST_F(RolloutPicture, TheStripShowsEachFrameOfEachRowOnce) {
  const Picture strip = rollout_strip(rollout_, style_);
  for (int t = 0; t < 3; ++t) {
    const auto level = static_cast<uint8_t>(51 * (t + 1));
    EXPECT_EQ(count(strip, {level, 0, 0}), 400) << t;
    EXPECT_EQ(count(strip, {0, level, 0}), 400) << t;
    EXPECT_EQ(count(strip, {level, level, 0}), 400) << t;
  }
}

TEST_F(RolloutPicture, BordersTellGivenFromImagined) {
  const Picture strip = rollout_strip(rollout_, style_);
  const int64_t border = 24 * 24 - 20 * 20;
  EXPECT_EQ(count(strip, style_.context), 3 * 1 * border);
  EXPECT_EQ(count(strip, style_.imagined), 3 * 2 * border);
  EXPECT_GT(count(strip, style_.ink), 100);  // labels and numbers
}

TEST_F(RolloutPicture, TheAnimationHasOnePictureAFrameAllOfOneSize) {
  const std::vector<Picture> frames = rollout_frames(rollout_, style_);
  ASSERT_EQ(frames.size(), 3u);
  for (size_t t = 0; t < 3; ++t) {
    const auto level = static_cast<uint8_t>(51 * (t + 1));
    EXPECT_EQ(count(frames[t], {level, 0, 0}), 400);
    EXPECT_EQ(count(frames[t], {level, level, 0}), 400);
    EXPECT_EQ(frames[t].rgb.size(), frames[0].rgb.size());
  }
  EXPECT_EQ(count(frames[0], style_.imagined), 0);
  EXPECT_EQ(count(frames[1], style_.context), 0);
}

TEST_F(RolloutPicture, RefusesAnEmptyRollout) {
  rollout_.frames = 0;
  EXPECT_THROW(rollout_strip(rollout_, style_), ShapeError);
  EXPECT_THROW(rollout_frames(rollout_, style_), ShapeError);
}

}  // namespace
}  // namespace vitrine

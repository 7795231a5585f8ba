// Layout of rollout pictures: enlarged cells with coloured borders, labels in the 5x7 font.
#include "media/rollout_picture.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/error.h"

namespace vitrine {
namespace {

constexpr int64_t kBorder = 2, kGap = 3, kMargin = 4;
constexpr std::array<const char*, 3> kLabels = {"TRUTH", "MODEL", "|DIFF|"};
constexpr int64_t kLabelWidth = 6 * kGlyphAdvance;

class Layout {
 public:
  Layout(const Rollout& rollout, const RolloutStyle& style)
      : rollout_(rollout),
        style_(style),
        scale_(style.scale > 0
                   ? style.scale
                   : std::max<int64_t>(
                         1, 72 / std::max<int64_t>(1, std::max(rollout.height, rollout.width)))) {
    if (rollout.frames < 1 || rollout.height < 1 || rollout.width < 1) {
      throw ShapeError("a rollout of " + std::to_string(rollout.frames) + " frames of " +
                       std::to_string(rollout.height) + "x" + std::to_string(rollout.width) +
                       " pixels can't be shown");
    }
  }

  int64_t cell_height() const { return rollout_.height * scale_ + 2 * kBorder; }
  int64_t cell_width() const { return rollout_.width * scale_ + 2 * kBorder; }

  // Row 0 truth, 1 prediction, 2 difference.
  Picture cell(size_t row, int64_t frame) const {
    const int64_t size = rollout_.height * rollout_.width * 3;
    const float* const truth = rollout_.truth + frame * size;
    const float* const prediction = rollout_.prediction + frame * size;
    std::vector<float> difference;
    const float* shown = row == 0 ? truth : prediction;
    if (row == 2) {
      difference.resize(static_cast<size_t>(size));
      std::transform(truth, truth + size, prediction, difference.begin(), [](float a, float b) {
        return std::fabs(a - b);
      });
      shown = difference.data();
    }
    const bool given = frame < rollout_.context;
    Picture result(cell_height(), cell_width(), given ? style_.context : style_.imagined);
    result.paste(Picture::from_floats(shown, rollout_.height, rollout_.width).enlarged(scale_),
                 kBorder,
                 kBorder);
    return result;
  }

  // A frame's number, centred over its cell.
  void number(Picture& picture, int64_t frame, int64_t y, int64_t x) const {
    const std::string text = std::to_string(frame);
    const int64_t width = static_cast<int64_t>(text.size()) * kGlyphAdvance - 1;
    picture.text(y, x + (cell_width() - width) / 2, text, style_.ink);
  }

 private:
  const Rollout& rollout_;
  const RolloutStyle& style_;
  int64_t scale_;
};

}  // namespace

Picture rollout_strip(const Rollout& rollout, const RolloutStyle& style) {
  const Layout layout(rollout, style);
  const int64_t left = kMargin + kLabelWidth + kGap, top = kMargin + kGlyphHeight + kGap;
  const int64_t step_x = layout.cell_width() + kGap, step_y = layout.cell_height() + kGap;
  Picture strip(top + 3 * step_y - kGap + kMargin,
                left + rollout.frames * step_x - kGap + kMargin,
                style.background);
  for (size_t row = 0; row < 3; ++row) {
    const int64_t y = top + static_cast<int64_t>(row) * step_y;
    strip.text(y + (layout.cell_height() - kGlyphHeight) / 2, kMargin, kLabels[row], style.ink);
    for (int64_t t = 0; t < rollout.frames; ++t)
      strip.paste(layout.cell(row, t), y, left + t * step_x);
  }
  for (int64_t t = 0; t < rollout.frames; ++t) layout.number(strip, t, kMargin, left + t * step_x);
  return strip;
}

std::vector<Picture> rollout_frames(const Rollout& rollout, const RolloutStyle& style) {
  const Layout layout(rollout, style);
  // Cells may be narrower than their labels.
  const int64_t step = std::max(layout.cell_width(), kLabelWidth) + kGap;
  const int64_t top = kMargin + kGlyphHeight + kGap;
  std::vector<Picture> frames;
  for (int64_t t = 0; t < rollout.frames; ++t) {
    Picture frame(top + layout.cell_height() + kGap + kGlyphHeight + kMargin,
                  2 * kMargin + 3 * step - kGap,
                  style.background);
    for (size_t row = 0; row < 3; ++row) {
      const int64_t x = kMargin + static_cast<int64_t>(row) * step;
      frame.text(kMargin, x, kLabels[row], style.ink);
      frame.paste(layout.cell(row, t), top, x);
    }
    const bool given = t < rollout.context;
    frame.text(top + layout.cell_height() + kGap,
               kMargin,
               std::to_string(t) + (given ? " GIVEN" : " IMAGINED"),
               given ? style.context : style.imagined);
    frames.push_back(std::move(frame));
  }
  return frames;
}

}  // namespace vitrine

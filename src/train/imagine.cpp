// Imagining and drawing.
#include "train/imagine.h"

#include <algorithm>
#include <filesystem>

#include "core/error.h"
#include "core/format.h"
#include "media/gif.h"
#include "media/png.h"
#include "train/predictor.h"

namespace vitrine {
namespace {

constexpr Colour kGiven{60, 190, 90}, kImagined{230, 90, 60}, kBackground{24, 24, 28},
    kInk{225, 225, 225};
constexpr int64_t kCell = 96;  // pixels of a frame's longer side, about
constexpr int64_t kBorder = 2, kGap = 6, kColumns = 8;

// One frame, enlarged, with a border that says whether it was given, and a line of text below.
Picture cell(const Imagined& imagined, int64_t t) {
  const int64_t side = std::max(imagined.height, imagined.width);
  const int64_t scale = std::max<int64_t>(1, kCell / side);
  const float* pixels = imagined.pixels.data() + t * imagined.height * imagined.width * 3;
  const Picture frame =
      Picture::from_floats(pixels, imagined.height, imagined.width).enlarged(scale);
  Picture out(
      frame.height + 2 * kBorder + kGlyphHeight + 3, frame.width + 2 * kBorder, kBackground);
  out.fill(0, 0, frame.height + 2 * kBorder, out.width, t < imagined.context ? kGiven : kImagined);
  out.paste(frame, kBorder, kBorder);
  std::string label = std::to_string(t);
  if (t >= imagined.context) {
    label += format(" ACTION %d", imagined.actions[static_cast<size_t>(t - 1)]);
  }
  out.text(frame.height + 2 * kBorder + 3, kBorder, label, kInk);
  return out;
}

}  // namespace

Imagined imagine(Engine& engine,
                 const WorldModelConfig& config,
                 const FrameCache& cache,
                 int64_t clip,
                 const std::vector<int32_t>& actions) {
  const int64_t window = config.window;
  const ClipIndex index(cache, window, 1);
  if (clip < 0 || clip >= index.size()) {
    throw ConfigError(format("clip %lld is not there: the held-out data have clips 0 to %lld",
                             static_cast<long long>(clip),
                             static_cast<long long>(index.size() - 1)));
  }
  for (const int32_t action : actions) {
    if (action >= 0 && action < config.action_count) continue;
    throw ConfigError(format("action %d is not there: the model knows 0 to %lld",
                             action,
                             static_cast<long long>(config.action_count - 1)));
  }
  Imagined out;
  out.frames = window + static_cast<int64_t>(actions.size());
  out.height = cache.height();
  out.width = cache.width();
  out.context = window;
  const int64_t first = index.first_frame(clip), frame = cache.frame_bytes();
  const bool discrete = cache.meta().action_kind == FrameActions::kDiscrete;
  for (int64_t t = 0; t < window; ++t) {
    const uint8_t* bytes = cache.frame(first + t);
    for (int64_t i = 0; i < frame; ++i) out.pixels.push_back(static_cast<float>(bytes[i]) / 255.0f);
    if (t + 1 < window) out.actions.push_back(discrete ? *cache.discrete_action(first + t) : 0);
  }
  out.actions.insert(out.actions.end(), actions.begin(), actions.end());
  FramePredictor predictor(engine, window);
  std::vector<std::vector<float>> next;
  for (int64_t h = 0; h < static_cast<int64_t>(actions.size()); ++h) {
    predictor.predict({out.pixels.data() + h * frame}, {out.actions.data() + h}, next);
    out.pixels.insert(out.pixels.end(), next[0].begin(), next[0].end());
  }
  return out;
}

void write_imagined(const Imagined& imagined, const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw IoError("cannot create " + folder + ": " + error.message());
  std::vector<Picture> cells;
  for (int64_t t = 0; t < imagined.frames; ++t) cells.push_back(cell(imagined, t));
  const int64_t height = cells[0].height + kGap, width = cells[0].width + kGap;
  const int64_t columns = std::min(kColumns, imagined.frames);
  const int64_t rows = (imagined.frames + columns - 1) / columns;
  Picture strip(rows * height + kGap, columns * width + kGap, kBackground);
  for (int64_t t = 0; t < imagined.frames; ++t) {
    strip.paste(
        cells[static_cast<size_t>(t)], kGap + t / columns * height, kGap + t % columns * width);
  }
  write_png(folder + "/imagined.png", strip);
  std::vector<Picture> animation;
  for (const Picture& picture : cells) animation.push_back(picture.enlarged(2));
  write_gif(folder + "/imagined.gif", animation, 25);
}

}  // namespace vitrine

// GIF: a palette for the whole animation, then one image a frame.
#include "media/gif.h"

#include <gif_lib.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>

#include "core/error.h"
#include "core/json.h"

namespace vitrine {
namespace {

// Colour to palette index, for every frame alike.
class Palette {
 public:
  explicit Palette(const std::vector<Picture>& frames) {
    for (const Picture& frame : frames) {
      for (size_t i = 0; i < frame.rgb.size() && exact_; i += 3) {
        const uint32_t key = key_of(&frame.rgb[i]);
        if (index_.contains(key)) continue;
        exact_ = index_.size() < 256;
        if (!exact_) break;
        index_.emplace(key, static_cast<uint8_t>(colours_.size()));
        colours_.push_back({frame.rgb[i], frame.rgb[i + 1], frame.rgb[i + 2]});
      }
    }
    if (exact_) return;
    colours_.clear();
    for (int r = 0; r < kLevels[0]; ++r) {
      for (int g = 0; g < kLevels[1]; ++g) {
        for (int b = 0; b < kLevels[2]; ++b) {
          colours_.push_back({level(r, 0), level(g, 1), level(b, 2)});
        }
      }
    }
  }

  const std::vector<Colour>& colours() const { return colours_; }

  uint8_t index(const uint8_t* pixel, int64_t y, int64_t x) const {
    if (exact_) return index_.at(key_of(pixel));
    // Bayer's 4x4 thresholds, in sixteenths.
    static constexpr int kBayer[4][4] = {
        {0, 8, 2, 10}, {12, 4, 14, 6}, {3, 11, 1, 9}, {15, 7, 13, 5}};
    const int threshold = 2 * kBayer[y % 4][x % 4] + 1;  // of 32
    int index = 0;
    for (size_t c = 0; c < 3; ++c) {
      const int steps = kLevels[c] - 1;
      const int scaled = pixel[c] * steps;  // of 255
      const int whole = scaled / 255, rest = scaled % 255;
      index = index * kLevels[c] + std::min(steps, whole + (rest * 32 > threshold * 255 ? 1 : 0));
    }
    return static_cast<uint8_t>(index);
  }

 private:
  static constexpr std::array<int, 3> kLevels = {6, 7, 6};  // the eye tells greens best
  static uint8_t level(int step, size_t channel) {
    return static_cast<uint8_t>(step * 255 / (kLevels[channel] - 1));
  }
  static uint32_t key_of(const uint8_t* pixel) {
    return uint32_t{pixel[0]} << 16 | uint32_t{pixel[1]} << 8 | pixel[2];
  }

  bool exact_ = true;
  std::map<uint32_t, uint8_t> index_;
  std::vector<Colour> colours_;
};

int append(GifFileType* gif, const GifByteType* bytes, int count) {
  static_cast<std::string*>(gif->UserData)
      ->append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(count));
  return count;
}

void check(const std::string& path, const std::vector<Picture>& frames, int delay_cs) {
  if (frames.empty()) throw ConfigError(path + ": no frames");
  if (delay_cs < 0 || delay_cs > 65535) {
    throw ConfigError(path + ": a delay of " + std::to_string(delay_cs) +
                      " hundredths of a second");
  }
  const Picture& first = frames.front();
  if (first.height < 1 || first.width < 1 || first.height > 65535 || first.width > 65535) {
    throw ConfigError(path + ": frames of " + std::to_string(first.height) + "x" +
                      std::to_string(first.width) + ", a GIF has 1 to 65535 pixels each way");
  }
  for (const Picture& frame : frames) {
    if (frame.height == first.height && frame.width == first.width) continue;
    throw ConfigError(path + ": frames of unlike sizes");
  }
}

}  // namespace

void write_gif(const std::string& path, const std::vector<Picture>& frames, int delay_cs) {
  check(path, frames, delay_cs);
  const Palette palette(frames);
  std::array<GifColorType, 256> table{};
  for (size_t i = 0; i < palette.colours().size(); ++i) {
    const Colour& colour = palette.colours()[i];
    table[i] = {colour[0], colour[1], colour[2]};
  }
  const std::unique_ptr<ColorMapObject, decltype(&GifFreeMapObject)> map(
      GifMakeMapObject(256, table.data()), GifFreeMapObject);

  std::string bytes;
  int error = 0;
  const auto require = [&](int status) {
    if (status == GIF_OK) return;
    const char* const why = GifErrorString(error);
    throw IoError(path + ": giflib: " + (why != nullptr ? why : "cannot encode"));
  };
  const auto close = [](GifFileType* gif) { EGifCloseFile(gif, nullptr); };
  std::unique_ptr<GifFileType, decltype(close)> gif(EGifOpen(&bytes, append, &error), close);
  require(gif != nullptr && map != nullptr ? GIF_OK : GIF_ERROR);
  EGifSetGifVersion(gif.get(), true);
  const auto width = static_cast<int>(frames[0].width), height = static_cast<int>(frames[0].height);
  require(EGifPutScreenDesc(gif.get(), width, height, 8, 0, map.get()));
  // Netscape's extension: repeat for ever.
  const GifByteType forever[] = {1, 0, 0};
  require(EGifPutExtensionLeader(gif.get(), APPLICATION_EXT_FUNC_CODE));
  require(EGifPutExtensionBlock(gif.get(), 11, "NETSCAPE2.0"));
  require(EGifPutExtensionBlock(gif.get(), 3, forever));
  require(EGifPutExtensionTrailer(gif.get()));
  std::vector<GifPixelType> line(static_cast<size_t>(width));
  for (const Picture& frame : frames) {
    const GifByteType control[] = {
        0, static_cast<GifByteType>(delay_cs & 255), static_cast<GifByteType>(delay_cs >> 8), 0};
    require(EGifPutExtension(gif.get(), GRAPHICS_EXT_FUNC_CODE, 4, control));
    require(EGifPutImageDesc(gif.get(), 0, 0, width, height, false, nullptr));
    for (int64_t y = 0; y < height; ++y) {
      for (int64_t x = 0; x < width; ++x) {
        line[static_cast<size_t>(x)] =
            palette.index(&frame.rgb[static_cast<size_t>(3 * (y * width + x))], y, x);
      }
      require(EGifPutLine(gif.get(), line.data(), width));
    }
  }
  require(EGifCloseFile(gif.release(), &error));
  write_text_file(path, bytes);
}

void write_gif(const std::string& path,
               const uint8_t* frames,
               int64_t count,
               int64_t height,
               int64_t width,
               int delay_cs,
               int64_t scale) {
  std::vector<Picture> pictures;
  for (int64_t i = 0; i < count; ++i) {
    pictures.push_back(
        Picture::from_bytes(frames + i * height * width * 3, height, width).enlarged(scale));
  }
  write_gif(path, pictures, delay_cs);
}

}  // namespace vitrine

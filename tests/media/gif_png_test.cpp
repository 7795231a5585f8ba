// PNG and GIF files, read back by libpng and giflib.
#include <gif_lib.h>
#include <png.h>

#include <cstdlib>

#include "core/error.h"
#include "media/gif.h"
#include "media/png.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

Picture gradient(int64_t height, int64_t width) {
  Picture picture(height, width);
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      picture.set(y,
                  x,
                  {static_cast<uint8_t>(x * 255 / width),
                   static_cast<uint8_t>(y * 255 / height),
                   static_cast<uint8_t>((x + y) % 256)});
    }
  }
  return picture;
}

struct DecodedGif {
  std::vector<Picture> frames;
  int delay_cs = -1;
  bool repeats = false;
};
DecodedGif decode(const std::string& path) {
  int error = 0;
  GifFileType* gif = DGifOpenFileName(path.c_str(), &error);
  DecodedGif result;
  EXPECT_NE(gif, nullptr) << path;
  if (gif == nullptr) return result;
  EXPECT_EQ(DGifSlurp(gif), GIF_OK);
  for (int i = 0; i < gif->ImageCount; ++i) {
    const SavedImage& image = gif->SavedImages[i];
    Picture picture(image.ImageDesc.Height, image.ImageDesc.Width);
    for (size_t p = 0; p < picture.rgb.size() / 3; ++p) {
      const GifColorType& colour = gif->SColorMap->Colors[image.RasterBits[p]];
      picture.rgb[3 * p] = colour.Red;
      picture.rgb[3 * p + 1] = colour.Green;
      picture.rgb[3 * p + 2] = colour.Blue;
    }
    result.frames.push_back(std::move(picture));
    GraphicsControlBlock control{};
    if (DGifSavedExtensionToGCB(gif, i, &control) == GIF_OK) result.delay_cs = control.DelayTime;
    for (int e = 0; e < image.ExtensionBlockCount; ++e) {
      const ExtensionBlock& block = image.ExtensionBlocks[e];
      if (block.Function != APPLICATION_EXT_FUNC_CODE) continue;
      result.repeats = std::string(reinterpret_cast<const char*>(block.Bytes),
                                   static_cast<size_t>(block.ByteCount)) == "NETSCAPE2.0";
    }
  }
  DGifCloseFile(gif, nullptr);
  return result;
}

TEST(Png, LibpngReadsThePictureBack) {
  ScratchFolder folder;
  const Picture picture = gradient(13, 37);
  write_png(folder / "a.png", picture);
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  ASSERT_NE(png_image_begin_read_from_file(&image, (folder / "a.png").c_str()), 0);
  EXPECT_EQ(image.height, 13u);
  EXPECT_EQ(image.width, 37u);
  image.format = PNG_FORMAT_RGB;
  std::vector<uint8_t> rgb(picture.rgb.size());
  ASSERT_NE(png_image_finish_read(&image, nullptr, rgb.data(), 0, nullptr), 0);
  EXPECT_EQ(rgb, picture.rgb);
}

TEST(Png, RefusesEmptyPicturesAndUnwritablePlaces) {
  ScratchFolder folder;
  EXPECT_CONTAINS(message_of<ConfigError>([&] { write_png(folder / "a.png", Picture()); }),
                  "empty");
  EXPECT_CONTAINS(message_of<IoError>([&] { write_png(folder / "no/a.png", Picture(1, 1)); }),
                  "no/a.png");
}

TEST(Gif, KeepsFewColoursExactly) {
  ScratchFolder folder;
  std::vector<Picture> frames;
  for (uint8_t t = 0; t < 5; ++t) {
    frames.emplace_back(9, 14, Colour{t, 10, 20});
    frames.back().fill(t, 2 * t, 2, 3, {255, static_cast<uint8_t>(50 * t), 7});
  }
  write_gif(folder / "a.gif", frames, 12);
  const DecodedGif gif = decode(folder / "a.gif");
  ASSERT_EQ(gif.frames.size(), 5u);
  for (size_t t = 0; t < 5; ++t) EXPECT_EQ(gif.frames[t].rgb, frames[t].rgb);
  EXPECT_EQ(gif.delay_cs, 12);
  EXPECT_TRUE(gif.repeats);
}

TEST(Gif, ApproximatesManyColoursWithoutShiftingTheirMean) {
  ScratchFolder folder;
  const Picture picture = gradient(64, 64);
  write_gif(folder / "a.gif", {picture, picture}, 4);
  const DecodedGif gif = decode(folder / "a.gif");
  ASSERT_EQ(gif.frames.size(), 2u);
  double sum = 0;
  int worst = 0;
  for (size_t i = 0; i < picture.rgb.size(); ++i) {
    const int difference = int{gif.frames[1].rgb[i]} - int{picture.rgb[i]};
    sum += difference;
    worst = std::max(worst, std::abs(difference));
  }
  EXPECT_LE(worst, 51);  // one step of the six levels
  EXPECT_LT(std::abs(sum / static_cast<double>(picture.rgb.size())), 1.5);
}

TEST(Gif, EnlargesBytesOfFrames) {
  ScratchFolder folder;
  const std::vector<uint8_t> frames = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};  // [2, 1, 2, 3]
  write_gif(folder / "a.gif", frames.data(), 2, 1, 2, 5, 3);
  const DecodedGif gif = decode(folder / "a.gif");
  ASSERT_EQ(gif.frames.size(), 2u);
  EXPECT_EQ(gif.frames[1].height, 3);
  EXPECT_EQ(gif.frames[1].pixel(2, 5), (Colour{10, 11, 12}));
}

TEST(Gif, RefusesWhatAGifCannotHold) {
  ScratchFolder folder;
  const auto refused = [&](const std::vector<Picture>& frames, int delay) {
    return message_of<ConfigError>([&] { write_gif(folder / "a.gif", frames, delay); });
  };
  EXPECT_CONTAINS(refused({}, 1), "no frames");
  EXPECT_CONTAINS(refused({Picture(1, 1), Picture(1, 2)}, 1), "unlike sizes");
  EXPECT_CONTAINS(refused({Picture(1, 70000)}, 1), "1x70000");
  EXPECT_CONTAINS(refused({Picture(1, 1)}, -1), "delay of -1");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace vitrine

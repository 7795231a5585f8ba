// Drawing: what is set is there, nothing outside is touched, and the font can be read.
#include "media/picture.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

namespace vitrine {
namespace {

TEST(Picture, CutsFloatsToTheRangeOfBytes) {
  const float values[6] = {-1, 0, 0.5f, 1, 7, std::numeric_limits<float>::quiet_NaN()};
  const Picture picture = Picture::from_floats(values, 1, 2);
  EXPECT_EQ(picture.rgb, (std::vector<uint8_t>{0, 0, 128, 255, 255, 0}));
}

TEST(Picture, EnlargesByWholePixels) {
  Picture picture(1, 2);
  picture.set(0, 1, {9, 8, 7});
  const Picture large = picture.enlarged(3);
  EXPECT_EQ(large.height, 3);
  EXPECT_EQ(large.width, 6);
  for (int64_t y = 0; y < 3; ++y) {
    for (int64_t x = 0; x < 6; ++x) {
      EXPECT_EQ(large.pixel(y, x), x < 3 ? (Colour{0, 0, 0}) : (Colour{9, 8, 7}));
    }
  }
}

TEST(Picture, DrawsNothingOutsideItself) {
  Picture picture(2, 2);
  picture.fill(-5, -5, 20, 6, {1, 1, 1});
  picture.paste(Picture(4, 4, {2, 2, 2}), 1, 1);
  picture.text(-3, 100, "FAR", {9, 9, 9});
  EXPECT_EQ(picture.pixel(0, 0), (Colour{1, 1, 1}));
  EXPECT_EQ(picture.pixel(0, 1), (Colour{0, 0, 0}));
  EXPECT_EQ(picture.pixel(1, 1), (Colour{2, 2, 2}));
}

TEST(Picture, WritesLettersThatCanBeRead) {
  Picture picture(7, 11);
  picture.text(0, 0, "t1", {255, 0, 0});
  const char* const rows[7] = {"#####...#..",
                               "..#....##..",
                               "..#.....#..",
                               "..#.....#..",
                               "..#.....#..",
                               "..#.....#..",
                               "..#....###."};
  for (int64_t y = 0; y < 7; ++y) {
    for (int64_t x = 0; x < 11; ++x) {
      EXPECT_EQ(picture.pixel(y, x)[0] != 0, rows[y][x] == '#') << y << " " << x;
    }
  }
}

TEST(Font, HasADistinctPictureForEachCharacter) {
  std::set<std::array<uint8_t, 7>> seen;
  const std::string_view characters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ .,:-+=/|()%#_<>";
  for (const char c : characters) {
    EXPECT_TRUE(seen.insert(glyph(c)).second) << c;
  }
  EXPECT_EQ(glyph('q'), glyph('Q'));
  EXPECT_EQ(glyph('~')[0], 0x1f);  // the box
  EXPECT_FALSE(seen.contains(glyph('~')));
}

}  // namespace
}  // namespace vitrine

// An RGB picture in memory and the few ways to draw on it.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace vitrine {

using Colour = std::array<uint8_t, 3>;

struct Picture {
  int64_t height = 0, width = 0;
  std::vector<uint8_t> rgb;  // [height, width, 3]

  Picture() = default;
  Picture(int64_t height, int64_t width, Colour fill = {0, 0, 0});
  // From u8 [H, W, 3], or from f32 [H, W, 3] in [0, 1] (values outside are cut).
  static Picture from_bytes(const uint8_t* rgb, int64_t height, int64_t width);
  static Picture from_floats(const float* rgb, int64_t height, int64_t width);

  Colour pixel(int64_t y, int64_t x) const;
  // What lies outside the picture is not drawn, by this and all below.
  void set(int64_t y, int64_t x, Colour colour);
  void fill(int64_t y, int64_t x, int64_t height, int64_t width, Colour colour);
  void paste(const Picture& other, int64_t y, int64_t x);
  // Text in the 5x7 font, its top left at (y, x); a character takes 6 pixels of width times `size`.
  void text(int64_t y, int64_t x, std::string_view text, Colour colour, int64_t size = 1);
  // Each pixel becomes a square of `factor` by `factor`.
  Picture enlarged(int64_t factor) const;
};

constexpr int64_t kGlyphHeight = 7, kGlyphAdvance = 6;

// Rows of a character's 5x7 picture, bit 4 leftmost. Letters are upper case whatever their case;
// characters without a picture show as a box.
std::array<uint8_t, 7> glyph(char character);

}  // namespace vitrine

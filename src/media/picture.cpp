// Drawing on pictures.
#include "media/picture.h"

#include <algorithm>

#include "core/error.h"

namespace vitrine {

Picture::Picture(int64_t h, int64_t w, Colour colour) : height(h), width(w) {
  VITRINE_ASSERT(h >= 0 && w >= 0);
  rgb.resize(static_cast<size_t>(3 * h * w));
  fill(0, 0, h, w, colour);
}

Picture Picture::from_bytes(const uint8_t* bytes, int64_t height, int64_t width) {
  Picture picture(height, width);
  std::copy_n(bytes, picture.rgb.size(), picture.rgb.begin());
  return picture;
}

Picture Picture::from_floats(const float* values, int64_t height, int64_t width) {
  Picture picture(height, width);
  for (size_t i = 0; i < picture.rgb.size(); ++i) {
    // Not clamp(): a NaN would pass through it.
    const float value = values[i] > 0 ? std::min(values[i], 1.0f) : 0.0f;
    picture.rgb[i] = static_cast<uint8_t>(value * 255 + 0.5f);
  }
  return picture;
}

Colour Picture::pixel(int64_t y, int64_t x) const {
  VITRINE_ASSERT(y >= 0 && y < height && x >= 0 && x < width);
  const auto at = static_cast<size_t>(3 * (y * width + x));
  return {rgb[at], rgb[at + 1], rgb[at + 2]};
}

void Picture::set(int64_t y, int64_t x, Colour colour) {
  if (y < 0 || y >= height || x < 0 || x >= width) return;
  std::copy(colour.begin(), colour.end(), rgb.begin() + 3 * (y * width + x));
}

void Picture::fill(int64_t y, int64_t x, int64_t h, int64_t w, Colour colour) {
  for (int64_t row = y; row < y + h; ++row) {
    for (int64_t column = x; column < x + w; ++column) set(row, column, colour);
  }
}

void Picture::paste(const Picture& other, int64_t y, int64_t x) {
  for (int64_t row = 0; row < other.height; ++row) {
    for (int64_t column = 0; column < other.width; ++column) {
      set(y + row, x + column, other.pixel(row, column));
    }
  }
}

void Picture::text(int64_t y, int64_t x, std::string_view text, Colour colour, int64_t size) {
  for (const char character : text) {
    const std::array<uint8_t, 7> rows = glyph(character);
    for (int64_t row = 0; row < 7; ++row) {
      for (int64_t column = 0; column < 5; ++column) {
        if ((rows[static_cast<size_t>(row)] >> (4 - column) & 1) == 0) continue;
        fill(y + row * size, x + column * size, size, size, colour);
      }
    }
    x += kGlyphAdvance * size;
  }
}

Picture Picture::enlarged(int64_t factor) const {
  VITRINE_ASSERT(factor >= 1);
  Picture result(height * factor, width * factor);
  for (int64_t y = 0; y < result.height; ++y) {
    for (int64_t x = 0; x < result.width; ++x) result.set(y, x, pixel(y / factor, x / factor));
  }
  return result;
}

}  // namespace vitrine

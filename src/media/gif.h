// Animated GIF files, through giflib.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "media/picture.h"

namespace vitrine {

// Frames of one size, each shown for `delay_cs` hundredths of a second, again and again. Up to 256
// different colours are kept exactly; beyond that colours are the nearest of a 6x7x6 cube, with
// ordered dithering. Written beside `path` and renamed. Throws ConfigError for no frames, unlike
// sizes, or a side above 65535; IoError.
void write_gif(const std::string& path, const std::vector<Picture>& frames, int delay_cs);

// From u8 [count, H, W, 3], enlarged `scale` times.
void write_gif(const std::string& path,
               const uint8_t* frames,
               int64_t count,
               int64_t height,
               int64_t width,
               int delay_cs,
               int64_t scale);

}  // namespace vitrine

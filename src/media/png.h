// PNG files of 8-bit RGB, through libpng.
#pragma once

#include <string>

#include "media/picture.h"

namespace vitrine {

// Written beside `path` and renamed. Throws IoError; ConfigError for an empty picture.
void write_png(const std::string& path, const Picture& picture);

}  // namespace vitrine

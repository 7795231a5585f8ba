// Pictures as data URIs.
#pragma once

#include <string>
#include <string_view>

namespace vitrine {

std::string base64(std::string_view bytes);

// "data:image/gif;base64,..." of a PNG, GIF, JPEG or WebP file, told by its first bytes. Throws
// IoError when it can't be read, ConfigError when it is none of these.
std::string image_data_uri(const std::string& path);

}  // namespace vitrine

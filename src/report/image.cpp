// Base64 and the signatures of picture formats.
#include "report/image.h"

#include <cstdint>

#include "core/error.h"
#include "core/json.h"

namespace vitrine {

std::string base64(std::string_view bytes) {
  static constexpr char kDigits[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t count = bytes.size() - i < 3 ? bytes.size() - i : 3;
    uint32_t group = 0;
    for (size_t j = 0; j < 3; ++j) {
      group = group << 8 | (j < count ? static_cast<uint8_t>(bytes[i + j]) : 0u);
    }
    for (size_t j = 0; j < 4; ++j) {
      out += j <= count ? kDigits[group >> (18 - 6 * j) & 63] : '=';
    }
  }
  return out;
}

std::string image_data_uri(const std::string& path) {
  const std::string bytes = read_text_file(path);
  const char* type = nullptr;
  if (bytes.starts_with("\x89PNG\r\n\x1a\n")) type = "png";
  if (bytes.starts_with("GIF87a") || bytes.starts_with("GIF89a")) type = "gif";
  if (bytes.starts_with("\xff\xd8\xff")) type = "jpeg";
  if (bytes.starts_with("RIFF") && bytes.compare(8, 4, "WEBP") == 0) type = "webp";
  if (type == nullptr) throw ConfigError(path + ": expected a PNG, GIF, JPEG or WebP picture");
  return std::string("data:image/") + type + ";base64," + base64(bytes);
}

}  // namespace vitrine

// PNG through libpng's simplified interface.
#include "media/png.h"

#include <png.h>

#include "core/error.h"
#include "core/json.h"

namespace vitrine {

void write_png(const std::string& path, const Picture& picture) {
  if (picture.height < 1 || picture.width < 1) throw ConfigError(path + ": an empty picture");
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(picture.width);
  image.height = static_cast<png_uint_32>(picture.height);
  image.format = PNG_FORMAT_RGB;
  std::string bytes(PNG_IMAGE_PNG_SIZE_MAX(image), '\0');
  png_alloc_size_t size = bytes.size();
  if (png_image_write_to_memory(&image, bytes.data(), &size, 0, picture.rgb.data(), 0, nullptr) ==
      0) {
    throw IoError(path + ": libpng: " + image.message);
  }
  bytes.resize(size);
  write_text_file(path, bytes);
}

}  // namespace vitrine

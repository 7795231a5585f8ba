// Reading through zlib, which passes plain files on as they are.
#include "readers/zipped_text.h"

#include <zlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "core/error.h"
#include "core/format.h"

namespace vitrine {

std::string read_zipped_text(const std::string& path, size_t padding) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) throw IoError(path + " is a folder, not a file");
  gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) throw IoError("cannot read " + path + ": " + std::strerror(errno));
  gzbuffer(file, 256 << 10);
  std::string text;
  size_t size = 0;
  int got = 0;
  do {
    constexpr size_t kBlock = size_t{4} << 20;
    if (text.size() < size + kBlock)
      text.resize(std::max(size + kBlock, text.size() + text.size() / 2));
    got = gzread(file, text.data() + size, static_cast<unsigned>(kBlock));
    if (got > 0) size += static_cast<size_t>(got);
  } while (got > 0);
  // A cut stream shows only as a pending error; a damaged one fails the read.
  int code = Z_OK;
  const char* message = gzerror(file, &code);
  const std::string reason = code == Z_ERRNO ? std::strerror(errno) : message;
  gzclose(file);
  if (code == Z_BUF_ERROR) {
    throw IoError(
        format("%s is cut short: its compressed data end after %zu bytes of text; "
               "was the writer interrupted, or the disk full?",
               path.c_str(),
               size));
  }
  if (code != Z_OK && code != Z_STREAM_END) {
    throw IoError(
        format("%s is damaged after %zu bytes of text: %s", path.c_str(), size, reason.c_str()));
  }
  if (size == 0) throw IoError(path + " is empty");
  text.resize(size + padding);
  std::memset(text.data() + size, 0, padding);
  return text;
}

}  // namespace vitrine

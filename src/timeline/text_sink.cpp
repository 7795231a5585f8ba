// Blocks of text through zlib, with a rename at the end.
#include "timeline/text_sink.h"

#include <unistd.h>
#include <zlib.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>

#include "core/error.h"
#include "core/json.h"

namespace vitrine {

TextSink::TextSink(const std::string& path)
    : path_(path), temporary_(path + ".tmp" + std::to_string(getpid())) {
  refuse_special_file(path);
  // Level 1: a third larger than level 6, four times as fast; "T" writes plain text.
  errno = 0;
  file_ = gzopen(temporary_.c_str(), path.ends_with(".gz") ? "wb1e" : "wbTe");
  if (file_ == nullptr) throw IoError("cannot create " + temporary_ + ": " + std::strerror(errno));
  gzbuffer(static_cast<gzFile>(file_), kBlock);
  buffer_.reserve(kBlock + 4096);
}

TextSink::~TextSink() {
  if (file_ == nullptr) return;
  gzclose(static_cast<gzFile>(file_));
  unlink(temporary_.c_str());
}

void TextSink::fail(const char* doing) {
  throw IoError(std::string("cannot ") + doing + " " + path_ + ": " +
                (errno != 0 ? std::strerror(errno) : "compression failed"));
}

TextSink& TextSink::operator<<(int64_t number) {
  char text[24];
  const auto end = std::to_chars(text, text + sizeof(text), number).ptr;
  return *this << std::string_view(text, static_cast<size_t>(end - text));
}

void TextSink::microseconds(int64_t ns) {
  if (ns < 0) *this << "-";
  const uint64_t size = ns < 0 ? 0 - static_cast<uint64_t>(ns) : static_cast<uint64_t>(ns);
  *this << static_cast<int64_t>(size / 1000);
  const auto rest = static_cast<int>(size % 1000);
  const char decimals[4] = {'.',
                            static_cast<char>('0' + rest / 100),
                            static_cast<char>('0' + rest / 10 % 10),
                            static_cast<char>('0' + rest % 10)};
  *this << std::string_view(decimals, 4);
}

void TextSink::flush() {
  errno = 0;
  if (!buffer_.empty() &&
      gzwrite(static_cast<gzFile>(file_), buffer_.data(), static_cast<unsigned>(buffer_.size())) ==
          0) {
    fail("write");
  }
  buffer_.clear();
}

void TextSink::finish() {
  flush();
  errno = 0;
  const int closed = gzclose(static_cast<gzFile>(file_));
  file_ = nullptr;
  if (closed != Z_OK) {
    const int reason = errno;
    unlink(temporary_.c_str());
    errno = reason;
    fail("write");
  }
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int reason = errno;
    unlink(temporary_.c_str());
    errno = reason;
    fail("rename to");
  }
}

}  // namespace vitrine

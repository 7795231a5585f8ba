// Lines through zlib, which passes plain files on as they are.
#include "readers/line_reader.h"

#include <zlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "core/error.h"
#include "core/format.h"

namespace vitrine {

namespace {

gzFile open_text(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) throw IoError(path + " is a folder, not a file");
  gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) throw IoError("cannot read " + path + ": " + std::strerror(errno));
  gzbuffer(file, 256 << 10);
  return file;
}

}  // namespace

LineReader::LineReader(const std::string& path) : path_(path) {
  file_ = open_text(path);
  buffer_.resize(2 * kLongestLine);
  refill();
  if (end_ == 0 && problem_.empty()) {
    gzclose(static_cast<gzFile>(file_));
    throw IoError(path + " is empty");
  }
}

LineReader::~LineReader() { gzclose(static_cast<gzFile>(file_)); }

void LineReader::refill() {
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  gzFile file = static_cast<gzFile>(file_);
  const int got = gzread(file, buffer_.data() + end_, static_cast<unsigned>(buffer_.size() - end_));
  if (got > 0) {
    end_ += static_cast<size_t>(got);
    read_bytes_ += static_cast<uint64_t>(got);
    return;
  }
  at_end_ = true;
  int code = Z_OK;
  const char* message = gzerror(file, &code);
  const std::string reason = code == Z_ERRNO ? std::strerror(errno) : message;
  if (code == Z_OK || code == Z_STREAM_END) return;
  problem_ = format("%s %s after %llu bytes of text",
                    path_.c_str(),
                    code == Z_BUF_ERROR ? "is cut short: its compressed data end"
                                        : ("is damaged (" + reason + "):").c_str(),
                    static_cast<unsigned long long>(read_bytes_));
}

bool LineReader::next(std::string_view& line) {
  size_t searched = begin_;
  while (true) {
    const void* found = std::memchr(buffer_.data() + searched, '\n', end_ - searched);
    size_t stop = found == nullptr
                      ? end_
                      : static_cast<size_t>(static_cast<const char*>(found) - buffer_.data());
    const bool too_long = stop - begin_ > kLongestLine;
    if (too_long) stop = begin_ + kLongestLine;
    if (found != nullptr || too_long || (at_end_ && begin_ < end_)) {
      line = std::string_view(buffer_).substr(begin_, stop - begin_);
      begin_ = stop + (found != nullptr && !too_long ? 1 : 0);
      if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
      return true;
    }
    if (at_end_) return false;
    const size_t kept = end_ - begin_;
    refill();
    searched = kept;
  }
}

std::string read_beginning(const std::string& path, size_t bytes) {
  gzFile file = open_text(path);
  std::string text(bytes, '\0');
  size_t size = 0;
  int got = 0;
  while (size < bytes &&
         (got = gzread(file, text.data() + size, static_cast<unsigned>(bytes - size))) > 0) {
    size += static_cast<size_t>(got);
  }
  gzclose(file);
  text.resize(size);
  return text;
}

}  // namespace vitrine

// Text that goes to a plain or gzipped file by blocks, and appears under its name only when whole.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace vitrine {

class TextSink {
 public:
  // Gzipped when `path` ends in ".gz". Throws IoError, as all of these do.
  explicit TextSink(const std::string& path);
  ~TextSink();  // removes the temporary file unless finish() was reached
  TextSink(const TextSink&) = delete;
  TextSink& operator=(const TextSink&) = delete;

  TextSink& operator<<(std::string_view text) {
    buffer_.append(text);
    if (buffer_.size() >= kBlock) flush();
    return *this;
  }
  TextSink& operator<<(int64_t number);
  // Nanoseconds as microseconds with three decimals.
  void microseconds(int64_t ns);
  void finish();

 private:
  static constexpr size_t kBlock = 256 << 10;
  void flush();
  [[noreturn]] void fail(const char* doing);

  std::string path_, temporary_, buffer_;
  void* file_ = nullptr;  // gzFile
};

}  // namespace vitrine

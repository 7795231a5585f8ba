// The text of a file, plain or gzipped, piece by piece; or a text in memory in the same way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace vitrine {

class TextSource {
 public:
  virtual ~TextSource() = default;
  // Fills up to `size` bytes; fewer only at the end, 0 behind it.
  virtual size_t read(char* into, size_t size) = 0;
  // After the end: why the text ends before it should ("its compressed data are cut short"); "" =
  // it is whole.
  virtual std::string problem() const { return ""; }
  // Bytes of text to come, as far as can be guessed; 0 = no guess.
  virtual uint64_t size_hint() const { return 0; }
};

// Recognises gzip by content (several members one after another too). Throws IoError: no such file,
// not readable, a folder, empty.
std::unique_ptr<TextSource> open_text_source(const std::string& path);
// Refers to `text`.
std::unique_ptr<TextSource> memory_text_source(std::string_view text);

}  // namespace vitrine

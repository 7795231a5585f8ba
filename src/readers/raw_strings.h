// Numbers for the texts of JSON strings, by the bytes that stand in the file: what those mean is
// worked out once a text, not once an event.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace vitrine {

// What had to be mended in a string; bits.
constexpr uint8_t kBadUtf8 = 1, kRawControl = 2, kBadEscape = 4;

// The text that JSON writes as `raw`: escapes resolved; bad UTF-8 becomes U+FFFD, unknown escapes
// and control characters stay as they are, and `mended` says so.
std::string text_of_raw(std::string_view raw, uint8_t& mended);

class RawStrings {
 public:
  RawStrings();

  // 0 is "". Equal bytes get equal numbers.
  uint32_t number(std::string_view raw);
  uint8_t mended(uint32_t number) const { return mended_[number]; }
  size_t size() const { return mended_.size(); }
  // The texts that are new since the last call, in order of their numbers.
  std::vector<std::string> take_new();

 private:
  struct Entry {
    uint64_t hash = 0;
    uint64_t begin = 0;
    uint32_t size = 0, number = kFree;
  };
  static constexpr uint32_t kFree = ~uint32_t{0};
  void grow();

  std::vector<Entry> entries_;
  std::string bytes_;  // of all raw texts
  std::vector<uint8_t> mended_;
  std::vector<std::string> new_;
};

}  // namespace vitrine

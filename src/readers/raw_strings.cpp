// Hashing of raw texts; resolving of escapes and repair of UTF-8.
#include "readers/raw_strings.h"

#include <cstring>
#include <utility>

namespace vitrine {
namespace {

__extension__ typedef unsigned __int128 Wide;

uint64_t fold(uint64_t a, uint64_t b) {
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}
template <typename T>
uint64_t load(const char* p) {
  T value;
  std::memcpy(&value, p, sizeof(T));
  return value;
}

// After wyhash (Wang Yi, public domain): a folded product for each 16 bytes.
uint64_t hash_of(std::string_view text) {
  constexpr uint64_t k0 = 0xa0761d6478bd642full, k1 = 0xe7037ed1a0b428dbull;
  const char* p = text.data();
  size_t n = text.size();
  uint64_t h = k0 ^ n;
  for (; n > 16; n -= 16, p += 16) h = fold(load<uint64_t>(p) ^ k1, load<uint64_t>(p + 8) ^ h);
  uint64_t a = 0, b = 0;
  if (n >= 8) {
    a = load<uint64_t>(p), b = load<uint64_t>(p + n - 8);
  } else if (n >= 4) {
    a = load<uint32_t>(p), b = load<uint32_t>(p + n - 4);
  } else if (n > 0) {
    a = load<uint8_t>(p) << 16 | load<uint8_t>(p + n / 2) << 8 | load<uint8_t>(p + n - 1);
  }
  return fold(a ^ k1, b ^ h);
}

// Bytes of the UTF-8 character at `p`, 0 where there is none (Unicode 15, table 3-7).
size_t utf8_size(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0u;
  };
  const unsigned first = byte(0), second = byte(1);
  const auto tail = [&](size_t i) { return byte(i) >= 0x80 && byte(i) <= 0xBF; };
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return tail(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    if (first == 0xE0 && second < 0xA0) return 0;
    if (first == 0xED && second > 0x9F) return 0;
    return tail(1) && tail(2) ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    if (first == 0xF0 && second < 0x90) return 0;
    if (first == 0xF4 && second > 0x8F) return 0;
    return tail(1) && tail(2) && tail(3) ? 4 : 0;
  }
  return 0;
}

void append_utf8(std::string& out, uint32_t code) {
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xC0 | code >> 6);
    out += static_cast<char>(0x80 | (code & 63));
  } else if (code < 0x10000) {
    out += static_cast<char>(0xE0 | code >> 12);
    out += static_cast<char>(0x80 | (code >> 6 & 63));
    out += static_cast<char>(0x80 | (code & 63));
  } else {
    out += static_cast<char>(0xF0 | code >> 18);
    out += static_cast<char>(0x80 | (code >> 12 & 63));
    out += static_cast<char>(0x80 | (code >> 6 & 63));
    out += static_cast<char>(0x80 | (code & 63));
  }
}

// The four hexadecimal digits behind "\u"; false where there are none.
bool hex4(std::string_view raw, size_t at, uint32_t& code) {
  if (at + 4 > raw.size()) return false;
  code = 0;
  for (size_t i = at; i < at + 4; ++i) {
    const char c = raw[i];
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) return false;
    code = code << 4 | static_cast<uint32_t>(digit);
  }
  return true;
}

// Appends what the escape at `at` (a backslash) means; returns its size.
size_t append_escape(std::string_view raw, size_t at, std::string& out, uint8_t& mended) {
  const char letter = at + 1 < raw.size() ? raw[at + 1] : '\0';
  constexpr std::string_view kLetters = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
  const size_t known = letter == '\0' ? std::string_view::npos : kLetters.find(letter);
  if (known != std::string_view::npos) {
    out += kMeanings[known];
    return 2;
  }
  uint32_t code = 0, low = 0;
  if (letter != 'u' || !hex4(raw, at + 2, code)) {
    mended |= kBadEscape;
    out += '\\';
    return 1;
  }
  if (code < 0xD800 || code > 0xDFFF) {
    append_utf8(out, code);
    return 6;
  }
  if (code < 0xDC00 && raw.substr(at + 6, 2) == "\\u" && hex4(raw, at + 8, low) && low >= 0xDC00 &&
      low <= 0xDFFF) {
    append_utf8(out, 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00));
    return 12;
  }
  mended |= kBadUtf8;  // half of a surrogate pair
  append_utf8(out, 0xFFFD);
  return 6;
}

}  // namespace

std::string text_of_raw(std::string_view raw, uint8_t& mended) {
  std::string out;
  out.reserve(raw.size());
  for (size_t i = 0; i < raw.size();) {
    const auto c = static_cast<unsigned char>(raw[i]);
    if (c == '\\') {
      i += append_escape(raw, i, out, mended);
    } else if (c < 0x80) {
      if (c < 0x20) mended |= kRawControl;
      out += raw[i++];
    } else if (const size_t size = utf8_size(raw, i); size > 0) {
      out += raw.substr(i, size);
      i += size;
    } else {
      mended |= kBadUtf8;
      append_utf8(out, 0xFFFD);
      ++i;
    }
  }
  return out;
}

RawStrings::RawStrings() : entries_(1024) { number(""); }

uint32_t RawStrings::number(std::string_view raw) {
  if (mended_.size() * 2 >= entries_.size()) grow();
  const uint64_t hash = hash_of(raw);
  const size_t mask = entries_.size() - 1;
  size_t slot = hash & mask;
  for (; entries_[slot].number != kFree; slot = (slot + 1) & mask) {
    const Entry& entry = entries_[slot];
    if (entry.hash == hash && entry.size == raw.size() &&
        (raw.empty() || std::memcmp(bytes_.data() + entry.begin, raw.data(), raw.size()) == 0)) {
      return entry.number;
    }
  }
  const auto number = static_cast<uint32_t>(mended_.size());
  entries_[slot] = {hash, bytes_.size(), static_cast<uint32_t>(raw.size()), number};
  bytes_ += raw;
  uint8_t mended = 0;
  new_.push_back(text_of_raw(raw, mended));
  mended_.push_back(mended);
  return number;
}

std::vector<std::string> RawStrings::take_new() { return std::exchange(new_, {}); }

void RawStrings::grow() {
  std::vector<Entry> old(entries_.size() * 2);
  old.swap(entries_);
  const size_t mask = entries_.size() - 1;
  for (const Entry& entry : old) {
    if (entry.number == kFree) continue;
    size_t slot = entry.hash & mask;
    while (entries_[slot].number != kFree) slot = (slot + 1) & mask;
    entries_[slot] = entry;
  }
}

}  // namespace vitrine

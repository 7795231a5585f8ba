// Steps over JSON text without building anything of it: spaces, ends of strings, whole values.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace vitrine::json_scan {

// Every text that is scanned is followed by this many zero bytes, so that blocks may be read beyond
// its end; a zero stops every scan.
constexpr size_t kPadding = 64;
// Far deeper nesting than any trace has is damage.
constexpr int kMostDepth = 4096;

enum class Outcome : uint8_t { kOk, kIncomplete, kBad };

inline const char* skip_space(const char* p) {
  while (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t') ++p;
  return p;
}

inline bool ends_scalar(char c) {
  return c == ',' || c == '}' || c == ']' || c == ' ' || c == '\n' || c == '\r' || c == '\t' ||
         c == '\0';
}

// Numbers, true, false, null, and the NaN and Infinity of Python's writer.
inline bool begins_scalar(char c) {
  return (c >= '0' && c <= '9') || c == '-' || c == 't' || c == 'f' || c == 'n' || c == 'N' ||
         c == 'I';
}

// The closing quote of the string whose first character is at `p`, or null where the text ends
// first. Sets `special` when the bytes are not the text itself, or might not be: escapes, control
// characters, anything beyond ASCII.
inline const char* string_end(const char* p, const char* end, bool& special) {
#ifdef __SSE2__
  const __m128i quote = _mm_set1_epi8('"'), back = _mm_set1_epi8('\\'), control = _mm_set1_epi8(31);
  for (;;) {
    const __m128i block = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    const auto stops = static_cast<uint32_t>(_mm_movemask_epi8(
        _mm_or_si128(_mm_or_si128(_mm_cmpeq_epi8(block, quote), _mm_cmpeq_epi8(block, back)),
                     _mm_cmpeq_epi8(_mm_min_epu8(block, control), block))));
    const auto high = static_cast<uint32_t>(_mm_movemask_epi8(block));
    if (stops == 0) {
      if (high != 0) special = true;
      p += 16;
      continue;
    }
    const int at = std::countr_zero(stops);
    if ((high & ((1u << at) - 1)) != 0) special = true;
    p += at;
#else
  for (;;) {
    while (static_cast<unsigned char>(*p) > 31 && *p != '"' && *p != '\\') {
      if (static_cast<unsigned char>(*p) > 127) special = true;
      ++p;
    }
#endif
    if (*p == '"') return p;
    if (p >= end) return nullptr;
    special = true;
    p += *p == '\\' ? 2 : 1;
    if (p > end) return nullptr;
  }
}

// The next quote or bracket at or after `p`, or the zero at the end.
inline const char* next_structure(const char* p) {
#ifdef __SSE2__
  const __m128i quote = _mm_set1_epi8('"'), open = _mm_set1_epi8('{'), close = _mm_set1_epi8('}'),
                fold = _mm_set1_epi8(0x20), zero = _mm_setzero_si128();
  for (;; p += 16) {
    const __m128i block = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    const __m128i folded = _mm_or_si128(block, fold);  // '[' as '{', ']' as '}'
    const auto stops = static_cast<uint32_t>(_mm_movemask_epi8(
        _mm_or_si128(_mm_or_si128(_mm_cmpeq_epi8(block, quote), _mm_cmpeq_epi8(block, zero)),
                     _mm_or_si128(_mm_cmpeq_epi8(folded, open), _mm_cmpeq_epi8(folded, close)))));
    if (stops != 0) return p + std::countr_zero(stops);
  }
#else
  while (*p != '"' && *p != '{' && *p != '}' && *p != '[' && *p != ']' && *p != '\0') ++p;
  return p;
#endif
}

// Steps over the rest of the array or object whose bracket `open` was passed; `p` ends behind the
// closing one. What stands between the brackets is looked at only as far as damage would lead
// astray.
inline Outcome skip_nested(const char*& p, const char* end, char open) {
  uint64_t objects = open == '{' ? 1 : 0;  // one bit a level, the innermost lowest
  uint64_t outer[kMostDepth / 64];         // of every 64 levels further out; rarely touched
  int depth = 1;
  for (;;) {
    p = next_structure(p);
    switch (*p) {
      case '"': {
        bool special = false;
        p = string_end(p + 1, end, special);
        if (p == nullptr) return p = end, Outcome::kIncomplete;
        p = skip_space(p + 1);
        if (*p != ',' && *p != ':' && *p != '}' && *p != ']')
          return p >= end ? Outcome::kIncomplete : Outcome::kBad;
        break;
      }
      case '{':
      case '[':
        if (depth == kMostDepth) return Outcome::kBad;
        if (depth % 64 == 0) outer[depth / 64 - 1] = objects;
        ++depth;
        objects = objects << 1 | (*p == '{' ? 1 : 0);
        ++p;
        break;
      case '}':
      case ']':
        if ((objects & 1) != (*p == '}' ? 1 : 0)) return Outcome::kBad;
        objects >>= 1;
        ++p;
        if (--depth == 0) return Outcome::kOk;
        if (depth % 64 == 0) objects = outer[depth / 64 - 1];
        break;
      default:
        return p >= end ? Outcome::kIncomplete : Outcome::kBad;
    }
  }
}

// Steps over any value; `p` stands on its first character.
inline Outcome skip_value(const char*& p, const char* end) {
  if (*p == '"') {
    bool special = false;
    const char* close = string_end(p + 1, end, special);
    p = close == nullptr ? end : close + 1;
    return close == nullptr ? Outcome::kIncomplete : Outcome::kOk;
  }
  if (*p == '{' || *p == '[') {
    const char open = *p++;
    return skip_nested(p, end, open);
  }
  if (p < end && !begins_scalar(*p)) return Outcome::kBad;
  const char* begin = p;
  while (!ends_scalar(*p) && *p != '"' && *p != '{' && *p != '[' && *p != ':') ++p;
  if (p >= end) return Outcome::kIncomplete;  // more digits may follow
  return p == begin ? Outcome::kBad : Outcome::kOk;
}

}  // namespace vitrine::json_scan

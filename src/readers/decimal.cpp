// Decimal text to integers.
#include "readers/decimal.h"

#include <limits>

namespace vitrine {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

__extension__ typedef unsigned __int128 Wide;
constexpr int kMostDigits = 36;  // more than this is no time, and would not fit

}  // namespace

// Digits with at most three behind a point, as nearly every time is written; false = something
// else.
static bool plain_microseconds(std::string_view text, int64_t& ns) {
  if (text.empty() || text.size() > 20) return false;
  uint64_t value = 0;
  size_t i = 0;
  for (; i < text.size() && is_digit(text[i]); ++i)
    value = value * 10 + static_cast<unsigned>(text[i] - '0');
  if (i == 0 || i > 16) return false;
  size_t decimals = 0;
  if (i < text.size()) {
    if (text[i] != '.' || text.size() - i > 4 || text.size() - i < 2) return false;
    for (++i; i < text.size(); ++i, ++decimals) {
      if (!is_digit(text[i])) return false;
      value = value * 10 + static_cast<unsigned>(text[i] - '0');
    }
  }
  for (; decimals < 3; ++decimals) value *= 10;
  if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return false;
  ns = static_cast<int64_t>(value);
  return true;
}

bool microseconds_to_ns(std::string_view text, int64_t& ns) {
  if (plain_microseconds(text, ns)) return true;
  size_t i = 0;
  while (i < text.size() && (text[i] == ' ' || text[i] == '"')) ++i;
  const bool negative = i < text.size() && text[i] == '-';
  if (negative) ++i;
  // Value = digits * 10^scale nanoseconds.
  Wide digits = 0;
  int count = 0, scale = 3;
  bool fraction = false, any = false;
  for (; i < text.size() && (is_digit(text[i]) || (text[i] == '.' && !fraction)); ++i) {
    if (text[i] == '.') {
      fraction = true;
      continue;
    }
    any = true;
    if (count >= kMostDigits) {
      if (!fraction) return false;
      continue;
    }
    digits = digits * 10 + static_cast<unsigned>(text[i] - '0');
    if (digits != 0) ++count;
    if (fraction) --scale;
  }
  if (!any) return false;
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    const bool down = i + 1 < text.size() && text[i + 1] == '-';
    int exponent = 0;
    for (i += down || (i + 1 < text.size() && text[i + 1] == '+') ? 2 : 1;
         i < text.size() && is_digit(text[i]) && exponent < 1000;
         ++i) {
      exponent = exponent * 10 + (text[i] - '0');
    }
    scale += down ? -exponent : exponent;
  }
  constexpr auto kLargest = static_cast<Wide>(std::numeric_limits<int64_t>::max());
  for (; scale > 0 && digits != 0; --scale) {
    if (digits > kLargest) return false;
    digits *= 10;
  }
  for (; scale < -1; ++scale) digits /= 10;
  if (scale == -1) digits = (digits + 5) / 10;
  if (digits > kLargest) return false;
  ns = negative ? -static_cast<int64_t>(digits) : static_cast<int64_t>(digits);
  return true;
}

int64_t first_integer(std::string_view text) {
  size_t i = 0;
  while (i < text.size() && !is_digit(text[i])) ++i;
  const bool negative = i > 0 && i < text.size() && text[i - 1] == '-';
  uint64_t value = 0;
  for (; i < text.size() && is_digit(text[i]); ++i)
    value = value * 10 + static_cast<uint64_t>(text[i] - '0');
  return static_cast<int64_t>(negative ? 0 - value : value);
}

int64_t first_amount(std::string_view text) {
  constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();
  size_t i = 0;
  while (i < text.size() && !is_digit(text[i])) ++i;
  const bool negative = i > 0 && i < text.size() && text[i - 1] == '-';
  int64_t value = 0;
  for (; i < text.size() && is_digit(text[i]); ++i) {
    const int64_t digit = text[i] - '0';
    value = value > (kLargest - digit) / 10 ? kLargest : value * 10 + digit;
  }
  return negative ? -value : value;
}

}  // namespace vitrine

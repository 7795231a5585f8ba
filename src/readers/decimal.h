// Numbers of trace files from their text, without going through double.
#pragma once

#include <cstdint>
#include <string_view>

namespace vitrine {

// "5115597383354.399" microseconds -> 5115597383354399 ns. Digits beyond a nanosecond are rounded
// to the nearest; exponents are understood; quotes and blanks around the number are ignored.
// Returns false when the text is no number or beyond int64.
bool microseconds_to_ns(std::string_view text, int64_t& ns);

// The first whole number in the text ("17", "\"stream 7\"", "-3"), 0 when there is none. Unsigned
// values beyond int64 wrap (identifiers need only stay different).
int64_t first_integer(std::string_view text);
// The same of an amount: what is beyond int64 becomes its nearest end.
int64_t first_amount(std::string_view text);

}  // namespace vitrine

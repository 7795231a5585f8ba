// The one formatter of bytes, times, counts and printf-style text; and name suggestions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace vitrine {

// "1.50 GiB", "512 B".
std::string format_bytes(double bytes);
// "1.2 s", "340 us", "12 ms" from nanoseconds.
std::string format_ns(double ns);
// "12.3 k", "1.50 M" (powers of 1000).
std::string format_count(double count);
// printf into a string.
[[gnu::format(printf, 1, 2)]] std::string format(const char* pattern, ...);
// ASCII letters made small.
std::string lower(std::string_view text);
std::string join(const std::vector<std::string>& parts, std::string_view separator);
// The candidate nearest to `name` by edit distance, or "" when none is near (over a third of its
// length).
std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace vitrine

// Words with a number behind them.
#include "readers/file_rank.h"

#include <algorithm>
#include <charconv>
#include <string>

#include "core/format.h"

namespace vitrine {

namespace {

int32_t number_behind(std::string_view name, std::string_view word) {
  constexpr std::string_view kDigits = "0123456789";
  for (size_t at = name.find(word); at != name.npos; at = name.find(word, at + 1)) {
    const size_t begin = name.find_first_not_of("-_", at + word.size());
    if (begin == name.npos) continue;
    const size_t end = std::min(name.find_first_not_of(kDigits, begin), name.size());
    if (end == begin || end - begin > 8) continue;
    int32_t rank = -1;
    std::from_chars(name.data() + begin, name.data() + end, rank);
    return rank;
  }
  return -1;
}

}  // namespace

int32_t rank_in_file_name(std::string_view path) {
  const std::string name = lower(path.substr(path.rfind('/') + 1));
  const int32_t rank = number_behind(name, "rank");
  return rank >= 0 ? rank : number_behind(name, "worker");
}

}  // namespace vitrine

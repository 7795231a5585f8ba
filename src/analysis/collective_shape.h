// What a collective's name says about who has to wait for whom.
#pragma once

#include <string_view>

namespace vitrine {

enum class CollectiveShape {
  kSymmetric,     // nobody ends before the last one has come: all-reduce, all-gather, ...
  kRooted,        // from or to one rank: broadcast, reduce, gather, scatter
  kPointToPoint,  // send, receive
  kUnknown
};

inline CollectiveShape collective_shape(std::string_view name) {
  const auto begins = [&](std::string_view word) { return name.substr(0, word.size()) == word; };
  if (begins("all_reduce") || begins("all_gather") || begins("reduce_scatter") ||
      begins("all_to_all") || begins("barrier")) {
    return CollectiveShape::kSymmetric;
  }
  if (begins("broadcast") || begins("reduce") || begins("gather") || begins("scatter")) {
    return CollectiveShape::kRooted;
  }
  if (name == "send" || name == "receive" || name == "recv") return CollectiveShape::kPointToPoint;
  return CollectiveShape::kUnknown;
}

}  // namespace vitrine

// The key "mergedRanks" of a file that `trace merge` wrote: of which rank each process is, how its
// times were moved, and what stood at the head of that rank's own file.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace vitrine {

constexpr const char* kMergedRanksKey = "mergedRanks";

struct MergedRank {
  int32_t rank = -1;
  int64_t offset_ns = 0;                                       // was added to its times
  std::vector<std::pair<std::string, std::string>> processes;  // in the merged file, in its own
  std::string header;                                          // a JSON object
};

std::string merged_ranks_text(const std::vector<MergedRank>& ranks);
// What is no such list gives none.
std::vector<MergedRank> merged_ranks_of(const std::string& text);

}  // namespace vitrine

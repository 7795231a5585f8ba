// Differences of clocks from ends of collectives, passed on along the best connected ranks.
#include "analysis/clocks.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <utility>

#include "analysis/collective_shape.h"
#include "analysis/statistics.h"

namespace vitrine {
namespace {

constexpr int64_t kHour_ns = 3'600'000'000'000;

// (earlier rank index, later) -> ends of the earlier less those of the later.
using Differences = std::map<std::pair<int32_t, int32_t>, std::vector<int64_t>>;

Differences end_differences(const std::vector<MatchedCollective>& collectives) {
  Differences result;
  for (const MatchedCollective& collective : collectives) {
    if (collective_shape(collective.name) != CollectiveShape::kSymmetric) continue;
    // Against the member of the lowest index: enough to reach all, and linear in the group's size.
    const auto* hub = &collective.members.front();
    for (const auto& member : collective.members) {
      if (member.rank_index < hub->rank_index) hub = &member;
    }
    for (const auto& member : collective.members) {
      if (member.rank_index == hub->rank_index) continue;
      result[{hub->rank_index, member.rank_index}].push_back(hub->end_ns - member.end_ns);
    }
  }
  return result;
}

int64_t half_range(const std::vector<int64_t>& values) {
  return (quantile(values, 0.9) - quantile(values, 0.1) + 1) / 2;
}

}  // namespace

std::vector<int64_t> anchor_offsets(const std::vector<RankFacts>& ranks) {
  std::vector<int64_t> offsets;
  for (const RankFacts& rank : ranks) {
    offsets.push_back(rank.wall_anchor_ns - ranks.front().wall_anchor_ns);
  }
  return offsets;
}

bool anchors_agree(const std::vector<RankFacts>& ranks, const std::vector<int64_t>& offsets) {
  // A rank in which nothing was recorded has no window, so its clock says nothing.
  const auto has_window = [](const RankFacts& rank) { return rank.end_ns > rank.begin_ns; };
  const auto first = std::find_if(ranks.begin(), ranks.end(), has_window);
  if (first == ranks.end()) return true;
  const int64_t reference = first->begin_ns + offsets[static_cast<size_t>(first - ranks.begin())];
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (!has_window(ranks[i])) continue;
    if (std::abs(ranks[i].begin_ns + offsets[i] - reference) > kHour_ns) return false;
  }
  return true;
}

std::vector<RankClock> estimate_clocks(const std::vector<RankFacts>& ranks,
                                       const std::vector<int64_t>& offsets,
                                       bool same_clock,
                                       const std::vector<MatchedCollective>& collectives) {
  std::vector<RankClock> clocks(ranks.size());
  if (ranks.empty()) return clocks;
  for (size_t i = 0; i < ranks.size(); ++i) {
    clocks[i].offset_ns = same_clock ? offsets[i] : 0;
    clocks[i].method = same_clock ? "wall clock of the host" : "none";
  }
  clocks[0].offset_ns = 0;
  clocks[0].method = "reference";
  clocks[0].uncertainty_ns = 0;

  const Differences differences = end_differences(collectives);
  std::vector<int64_t> correction(ranks.size(), 0);
  std::vector<bool> reached(ranks.size(), false);
  reached[0] = true;
  for (;;) {
    // The edge with the most samples that leads from a known clock to an unknown one.
    const Differences::value_type* best = nullptr;
    for (const auto& edge : differences) {
      const auto [a, b] = edge.first;
      if (reached[static_cast<size_t>(a)] == reached[static_cast<size_t>(b)]) continue;
      if (best == nullptr || edge.second.size() > best->second.size()) best = &edge;
    }
    if (best == nullptr) break;
    const auto [a, b] = best->first;
    const bool forwards = reached[static_cast<size_t>(a)];
    const auto from = static_cast<size_t>(forwards ? a : b);
    const auto to = static_cast<size_t>(forwards ? b : a);
    const int64_t difference = median(best->second);
    correction[to] = correction[from] + (forwards ? difference : -difference);
    reached[to] = true;
    clocks[to].offset_ns = offsets[to] + correction[to];
    clocks[to].uncertainty_ns = clocks[from].uncertainty_ns + half_range(best->second);
    clocks[to].samples = static_cast<int64_t>(best->second.size());
    clocks[to].method = "collectives end together";
  }
  return clocks;
}

void apply_clocks(const std::vector<int64_t>& offsets,
                  const std::vector<RankClock>& clocks,
                  std::vector<MatchedCollective>& collectives) {
  for (MatchedCollective& collective : collectives) {
    for (auto& member : collective.members) {
      const auto rank = static_cast<size_t>(member.rank_index);
      const int64_t moved = clocks[rank].offset_ns - offsets[rank];
      member.start_ns += moved;
      member.end_ns += moved;
    }
    std::stable_sort(collective.members.begin(),
                     collective.members.end(),
                     [](const auto& a, const auto& b) { return a.start_ns < b.start_ns; });
  }
  std::stable_sort(collectives.begin(), collectives.end(), [](const auto& a, const auto& b) {
    return a.members.front().start_ns < b.members.front().start_ns;
  });
}

}  // namespace vitrine

// Bandwidths by nccl-tests' formulas, and what the cards' link would give.
#include "analysis/bandwidth.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "analysis/collective_shape.h"
#include "analysis/statistics.h"
#include "analysis/waits.h"
#include "machines/accelerators.h"

namespace vitrine {
namespace {

constexpr int64_t kLarger_bytes = 1 << 20;
constexpr size_t kRanksOfHost = 8;

struct Gathered {
  CollectiveKind kind;
  std::vector<double> bandwidths;
  std::vector<int64_t> sizes;  // of the messages of `bandwidths`
  std::map<int32_t, int64_t> last;
};

using KindKey = std::tuple<std::string, std::vector<int32_t>, std::string>;

// What is expected of messages of `bytes`, and of which link.
void fill_expected(const std::vector<RankFacts>& ranks, int64_t bytes, CollectiveKind& kind) {
  std::set<std::string> devices, hosts;
  size_t members = 0;
  for (const RankFacts& rank : ranks) {
    if (std::find(kind.ranks.begin(), kind.ranks.end(), rank.rank) == kind.ranks.end()) continue;
    ++members;
    devices.insert(rank.device);
    hosts.insert(rank.host);
  }
  if (members < 2 || kind.ranks.size() > kRanksOfHost) return;
  if (collective_shape(kind.name) != CollectiveShape::kSymmetric) return;
  if (devices.size() != 1 || hosts.size() != 1) return;
  const Accelerator* card = find_accelerator(*devices.begin());
  if (card == nullptr || card->link_bytes_per_s <= 0) return;
  kind.expected_bytes_per_s = expected_bus_bandwidth(*card, kind.name, bytes);
  kind.expected_from = std::string(card->link_name) + " of " + card->name;
}

}  // namespace

double bus_factor(const std::string& name, int32_t ranks) {
  if (ranks < 2) return 0;
  const double n = ranks;
  const auto begins = [&](const char* word) { return name.rfind(word, 0) == 0; };
  if (begins("all_reduce")) return 2 * (n - 1) / n;
  if (begins("all_gather") || begins("reduce_scatter") || begins("all_to_all") ||
      begins("gather") || begins("scatter")) {
    return (n - 1) / n;
  }
  if (begins("broadcast") || begins("reduce") || begins("send")) return 1;
  return 0;
}

void fill_bandwidths(std::vector<MatchedCollective>& collectives) {
  for (MatchedCollective& collective : collectives) {
    if (!collective.whole || collective.bytes <= 0 || collective.transfer_ns <= 0) continue;
    const double seconds = static_cast<double>(collective.transfer_ns) * 1e-9;
    collective.algorithm_bytes_per_s = static_cast<double>(collective.bytes) / seconds;
    collective.bus_bytes_per_s =
        collective.algorithm_bytes_per_s *
        bus_factor(collective.name, static_cast<int32_t>(collective.members.size()));
  }
}

std::vector<CollectiveKind> collective_kinds(const std::vector<RankFacts>& ranks,
                                             const std::vector<RankClock>& clocks,
                                             const std::vector<MatchedCollective>& collectives) {
  std::map<KindKey, Gathered> kinds;
  const auto kind_of = [&](
      const std::string& name, const auto& members, const auto& group) -> auto& {
    Gathered& gathered = kinds[{name, members, members.empty() ? group : std::string()}];
    if (gathered.kind.name.empty()) {
      gathered.kind.name = name;
      gathered.kind.group = group;
      gathered.kind.ranks = members;
    }
    return gathered;
  };

  std::vector<std::vector<bool>> matched(ranks.size());
  for (size_t i = 0; i < ranks.size(); ++i) matched[i].resize(ranks[i].collectives.size(), false);
  for (const MatchedCollective& collective : collectives) {
    Gathered& gathered = kind_of(collective.name, collective.ranks, collective.group);
    CollectiveKind& kind = gathered.kind;
    ++kind.count;
    kind.bytes = std::max(kind.bytes, collective.bytes);
    for (const auto& member : collective.members) {
      const auto rank = static_cast<size_t>(member.rank_index);
      matched[rank][static_cast<size_t>(member.use)] = true;
      const int64_t duration = member.end_ns - member.start_ns;
      kind.total_ns += duration;
      kind.exposed_ns += ranks[rank].collectives[static_cast<size_t>(member.use)].exposed_ns;
      kind.wait_ns += member.wait_ns;
      kind.transfer_ns += duration - member.wait_ns;
    }
    if (collective.bus_bytes_per_s > 0 && collective.bytes >= kLarger_bytes) {
      gathered.bandwidths.push_back(collective.bus_bytes_per_s);
      gathered.sizes.push_back(collective.bytes);
    }
    if (arrival_known(collective, clocks)) {
      ++gathered.last[ranks[static_cast<size_t>(collective.members.back().rank_index)].rank];
    }
  }
  for (size_t i = 0; i < ranks.size(); ++i) {
    for (size_t k = 0; k < matched[i].size(); ++k) {
      if (matched[i][k]) continue;
      const CollectiveUse& use = ranks[i].collectives[k];
      const bool known = use.group >= 0;
      const GroupUse none;
      const GroupUse& group = known ? ranks[i].groups[static_cast<size_t>(use.group)] : none;
      CollectiveKind& kind = kind_of(use.name, group.ranks, group.name).kind;
      ++kind.unmatched;
      kind.bytes = std::max(kind.bytes, use.bytes);
      kind.total_ns += use.duration_ns;
      kind.exposed_ns += use.exposed_ns;
    }
  }

  std::vector<CollectiveKind> result;
  for (auto& [key, gathered] : kinds) {
    CollectiveKind& kind = gathered.kind;
    kind.bus_bytes_per_s = median(gathered.bandwidths);
    if (!gathered.sizes.empty()) fill_expected(ranks, median(gathered.sizes), kind);
    kind.last_arrivals.assign(gathered.last.begin(), gathered.last.end());
    std::stable_sort(kind.last_arrivals.begin(),
                     kind.last_arrivals.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
    result.push_back(std::move(kind));
  }
  std::stable_sort(result.begin(), result.end(), [](const auto& a, const auto& b) {
    return a.exposed_ns > b.exposed_ns;
  });
  return result;
}

}  // namespace vitrine

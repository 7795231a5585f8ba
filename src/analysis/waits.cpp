// Splits each member's time at the latest arrival.
#include "analysis/waits.h"

#include <algorithm>
#include <limits>
#include <map>

namespace vitrine {
namespace {

// A rank's coarse pieces of work, to be asked by time. They come by begin; a later one may end
// before an earlier one, so the search goes by the latest end so far.
class Work {
 public:
  explicit Work(const RankFacts& rank) : pieces_(rank.work) {
    int64_t latest = std::numeric_limits<int64_t>::min();
    for (const WorkPiece& piece : pieces_) {
      ends_.push_back(latest = std::max(latest, piece.end_ns));
    }
  }
  bool empty() const { return pieces_.empty(); }
  // Compute within [begin, end) of the rank's own clock.
  int64_t compute_inside(int64_t begin, int64_t end) const {
    const auto first = std::upper_bound(ends_.begin(), ends_.end(), begin);
    double busy = 0;
    for (auto piece = pieces_.begin() + (first - ends_.begin());
         piece != pieces_.end() && piece->begin_ns < end;
         ++piece) {
      const int64_t length = piece->end_ns - piece->begin_ns;
      if (length <= 0) continue;
      const int64_t common = std::min(end, piece->end_ns) - std::max(begin, piece->begin_ns);
      busy += static_cast<double>(piece->busy_ns) *
              static_cast<double>(std::max<int64_t>(0, common)) / static_cast<double>(length);
    }
    return static_cast<int64_t>(busy);
  }

 private:
  const std::vector<WorkPiece>& pieces_;
  std::vector<int64_t> ends_;
};

int64_t exposed_wait(const Work& work, const CollectiveUse& use, int64_t wait) {
  const int64_t exposed = std::min(use.exposed_ns, use.duration_ns);
  const int64_t transfer = use.duration_ns - wait;
  const int64_t least = std::max<int64_t>(0, exposed - transfer);
  const int64_t most = std::min(wait, exposed);
  if (work.empty()) return least;
  const int64_t open = wait - work.compute_inside(use.start_ns, use.start_ns + wait);
  return std::clamp(open, least, most);
}

}  // namespace

void tell_waits(const std::vector<RankFacts>& ranks, std::vector<MatchedCollective>& collectives) {
  const std::vector<Work> work(ranks.begin(), ranks.end());
  for (MatchedCollective& collective : collectives) {
    auto& members = collective.members;
    int64_t latest = std::numeric_limits<int64_t>::min();
    int64_t last_end = latest;
    int64_t first_end = std::numeric_limits<int64_t>::max();
    int64_t quickest = first_end;
    for (const auto& member : members) {
      latest = std::max(latest, member.start_ns);
      last_end = std::max(last_end, member.end_ns);
      first_end = std::min(first_end, member.end_ns);
      quickest = std::min(quickest, member.end_ns - member.start_ns);
    }
    collective.arrival_skew_ns = latest - members.front().start_ns;
    collective.end_skew_ns = last_end - first_end;
    collective.transfer_ns = std::numeric_limits<int64_t>::max();
    for (auto& member : members) {
      const int64_t duration = member.end_ns - member.start_ns;
      member.wait_ns = std::clamp<int64_t>(latest - member.start_ns, 0, duration - quickest);
      const auto rank = static_cast<size_t>(member.rank_index);
      const CollectiveUse& use = ranks[rank].collectives[static_cast<size_t>(member.use)];
      member.exposed_wait_ns = exposed_wait(work[rank], use, member.wait_ns);
      collective.transfer_ns = std::min(collective.transfer_ns, duration - member.wait_ns);
    }
  }
}

std::vector<RankWaits> sum_waits(const std::vector<RankFacts>& ranks,
                                 const std::vector<MatchedCollective>& collectives) {
  std::vector<RankWaits> result(ranks.size());
  std::vector<std::vector<bool>> matched(ranks.size());
  std::vector<std::map<int32_t, int64_t>> by_rank(ranks.size());
  for (size_t i = 0; i < ranks.size(); ++i) matched[i].resize(ranks[i].collectives.size(), false);
  for (const MatchedCollective& collective : collectives) {
    const int32_t latest = ranks[static_cast<size_t>(collective.members.back().rank_index)].rank;
    for (const auto& member : collective.members) {
      const auto rank = static_cast<size_t>(member.rank_index);
      const CollectiveUse& use = ranks[rank].collectives[static_cast<size_t>(member.use)];
      matched[rank][static_cast<size_t>(member.use)] = true;
      result[rank].exposed_wait_ns += member.exposed_wait_ns;
      result[rank].exposed_transfer_ns +=
          std::max<int64_t>(0, use.exposed_ns - member.exposed_wait_ns);
      if (member.exposed_wait_ns > 0) by_rank[rank][latest] += member.exposed_wait_ns;
    }
  }
  for (size_t i = 0; i < ranks.size(); ++i) {
    for (size_t k = 0; k < matched[i].size(); ++k) {
      if (!matched[i][k]) result[i].unknown_ns += ranks[i].collectives[k].exposed_ns;
    }
    result[i].waited_for.assign(by_rank[i].begin(), by_rank[i].end());
    std::stable_sort(result[i].waited_for.begin(),
                     result[i].waited_for.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
  }
  return result;
}

bool arrival_known(const MatchedCollective& collective, const std::vector<RankClock>& clocks) {
  int64_t waited = 0;
  int64_t uncertainty = 0;
  for (const auto& member : collective.members) {
    waited = std::max(waited, member.wait_ns);
    const RankClock& clock = clocks[static_cast<size_t>(member.rank_index)];
    uncertainty = std::max(uncertainty, clock.uncertainty_ns);
  }
  return collective.arrival_skew_ns > uncertainty && waited > uncertainty;
}

}  // namespace vitrine

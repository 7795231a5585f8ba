// Resolves waits in order of time, so that what a late rank waited for is known before it is
// blamed.
#include "analysis/blame.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace vitrine {
namespace {

using Shares = std::map<int32_t, double>;  // rank index -> ns of wait it is to blame for

struct WaitEvent {
  int64_t begin = 0, wait = 0;
  Shares blamed;
};

class Follower {
 public:
  Follower(size_t ranks, const std::vector<MatchedCollective>& collectives)
      : collectives_(collectives), events_(ranks) {}

  std::vector<Blame> run() {
    std::vector<int32_t> order(collectives_.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(
        order.begin(), order.end(), [&](int32_t a, int32_t b) { return arrival(a) < arrival(b); });
    std::vector<Blame> result;
    result.reserve(order.size());
    for (const int32_t index : order) result.push_back(resolve(index));
    return result;
  }

 private:
  const MatchedCollective& at(int32_t index) const {
    return collectives_[static_cast<size_t>(index)];
  }
  int64_t arrival(int32_t index) const { return at(index).members.back().start_ns; }

  // Waits of a rank that began after `since`, and for whom.
  Shares waits_since(int32_t rank, int64_t since) const {
    Shares sum;
    const auto& events = events_[static_cast<size_t>(rank)];
    for (auto event = events.rbegin(); event != events.rend() && event->begin >= since; ++event) {
      for (const auto& [blamed, ns] : event->blamed) sum[blamed] += ns;
    }
    return sum;
  }

  static double total(const Shares& shares) {
    double sum = 0;
    for (const auto& [rank, ns] : shares) sum += ns;
    return sum;
  }

  Blame resolve(int32_t index) {
    const MatchedCollective& collective = at(index);
    Blame blame;
    blame.collective = index;
    blame.message = collective.name == "send" || collective.name == "send_receive";
    const int32_t latest = collective.members.back().rank_index;
    std::vector<int32_t> key;
    for (const auto& member : collective.members) key.push_back(member.rank_index);
    std::sort(key.begin(), key.end());
    const auto before = last_end_.find(key);
    const int64_t since = before == last_end_.end() ? INT64_MIN : before->second;
    const Shares latest_waits = waits_since(latest, since);
    const double latest_total = total(latest_waits);

    Shares whole;
    int64_t end = 0;
    for (const auto& member : collective.members) {
      end = std::max(end, member.end_ns);
      blame.longest_wait_ns = std::max(blame.longest_wait_ns, member.wait_ns);
      if (member.wait_ns <= 0) continue;
      const auto wait = static_cast<double>(member.wait_ns);
      const double own = total(waits_since(member.rank_index, since));
      const double passed = std::clamp(latest_total - own, 0.0, wait);
      Shares shares;
      shares[latest] += wait - passed;
      for (const auto& [rank, ns] : latest_waits) shares[rank] += passed * ns / latest_total;
      const double exposed = static_cast<double>(member.exposed_wait_ns) / wait;
      for (const auto& [rank, ns] : shares) {
        // A rank's own lateness that comes back to it is nobody's fault but its own.
        if (rank == member.rank_index || ns <= 0) continue;
        whole[rank] += ns;
        blame.parts.push_back({rank, member.rank_index, static_cast<int64_t>(ns * exposed + 0.5)});
      }
      events_[static_cast<size_t>(member.rank_index)].push_back(
          {member.start_ns, member.wait_ns, std::move(shares)});
    }
    for (const auto& [rank, ns] : whole) {
      if (blame.most < 0 || ns > whole[blame.most]) blame.most = rank;
    }
    last_end_[key] = end;
    return blame;
  }

  const std::vector<MatchedCollective>& collectives_;
  std::vector<std::vector<WaitEvent>> events_;  // by rank index, by begin
  std::map<std::vector<int32_t>, int64_t> last_end_;
};

}  // namespace

std::vector<Blame> follow_waits(size_t ranks, const std::vector<MatchedCollective>& collectives) {
  return Follower(ranks, collectives).run();
}

}  // namespace vitrine

// Exposed transfer by purpose.
#include "analysis/rules/traffic.h"

#include <algorithm>
#include <map>
#include <utility>

namespace vitrine {

// What is expected is what the link gives at that size; runs without fault measure 0.9 to 1.4 of
// it, transport through host memory 0.13.
const double kSlowBus = 0.5;

namespace {
// Smaller messages are bound by latency, on any link.
constexpr int64_t kLargeMessage = 4 << 20;
// What to expect once the right link is used, of its figure.
constexpr double kUsualBus = 0.8;

// Kinds are kept by name and ranks, by name and group where the ranks are not known.
class KindIndex {
 public:
  explicit KindIndex(const std::vector<CollectiveKind>& kinds) {
    for (const CollectiveKind& kind : kinds) {
      if (!kind.ranks.empty()) by_ranks_.emplace(std::pair(kind.name, kind.ranks), &kind);
      by_group_[{kind.name, kind.group}].push_back(&kind);
    }
  }

  const CollectiveKind* find(const std::string& name,
                             const std::vector<int32_t>& ranks,
                             const std::string& group,
                             int32_t rank) const {
    if (!ranks.empty()) {
      const auto exact = by_ranks_.find({name, ranks});
      if (exact != by_ranks_.end()) return exact->second;
    }
    const auto named = by_group_.find({name, group});
    if (named == by_group_.end()) return nullptr;
    for (const CollectiveKind* kind : named->second) {
      const auto& all = kind->ranks;
      if (all.empty() || std::find(all.begin(), all.end(), rank) != all.end()) return kind;
    }
    return named->second.front();
  }

 private:
  std::map<std::pair<std::string, std::vector<int32_t>>, const CollectiveKind*> by_ranks_;
  std::map<std::pair<std::string, std::string>, std::vector<const CollectiveKind*>> by_group_;
};

// A matched collective knows its kind, though its uses may go by another name: kernels that send
// and receive at once are an all-to-all once all ranks are seen to take part.
void kinds_of_matched(const JobFacts& job, const KindIndex& index, JobView& view) {
  std::vector<RankView*> by_index(job.ranks.size(), nullptr);
  for (RankView& rank : view.ranks) by_index[rank.index] = &rank;
  for (const MatchedCollective& matched : job.collectives) {
    const CollectiveKind* kind = nullptr;
    for (const MatchedCollective::Member& member : matched.members) {
      const auto at = static_cast<size_t>(member.rank_index);
      RankView* rank = at < by_index.size() ? by_index[at] : nullptr;
      if (rank == nullptr || static_cast<size_t>(member.use) >= rank->use_kind.size()) continue;
      if (kind == nullptr)
        kind = index.find(matched.name, matched.ranks, matched.group, rank->rank);
      rank->use_kind[static_cast<size_t>(member.use)] = kind;
    }
  }
}

Traffic traffic_of(const std::string& role, const CollectiveUse& use) {
  if (role == "tensor") return Traffic::kTensorParallel;
  if (use.name.starts_with("all_gather")) return Traffic::kGather;
  // reduce, reduce_scatter and their variants
  const bool reduces = use.name.starts_with("all_reduce") || use.name.starts_with("reduce");
  if (reduces && use.phase != Phase::kForward && role != "expert" && role != "pipeline") {
    return Traffic::kGradients;
  }
  return Traffic::kOther;
}

}  // namespace

bool computes(const JobView& view) {
  return std::any_of(view.ranks.begin(), view.ranks.end(), [](const RankView& rank) {
    return rank.compute_ns * 100 >= rank.step_ns;
  });
}

bool is_large(const CollectiveKind& kind) { return kind.bytes >= kLargeMessage; }

void tell_traffic(JobView& view) {
  const JobFacts& job = *view.job;
  const KindIndex index(job.collective_kinds);
  for (RankView& rank : view.ranks) {
    rank.use_kind.assign(rank.facts->collectives.size(), nullptr);
  }
  kinds_of_matched(job, index, view);
  const GroupUse none;
  for (RankView& rank : view.ranks) {
    const auto& groups = rank.facts->groups;
    std::vector<std::string> roles;
    for (const GroupUse& group : groups) roles.push_back(group_role(job, group.name));
    // Of uses that were not matched, by the index of their group.
    std::map<std::pair<int32_t, std::string>, const CollectiveKind*> others;
    rank.use_traffic.clear();
    for (size_t i = 0; i < rank.use_kind.size(); ++i) {
      const CollectiveUse& use = rank.facts->collectives[i];
      const bool grouped = use.group >= 0 && static_cast<size_t>(use.group) < groups.size();
      const auto at = static_cast<size_t>(use.group);
      rank.use_traffic.push_back(traffic_of(grouped ? roles[at] : "unknown", use));
      if (rank.use_kind[i] != nullptr) continue;
      const auto [other, added] = others.try_emplace({grouped ? use.group : -1, use.name}, nullptr);
      if (added) {
        const GroupUse& group = grouped ? groups[at] : none;
        other->second = index.find(use.name, group.ranks, group.name, rank.rank);
      }
      rank.use_kind[i] = other->second;
    }
  }
}

std::vector<ExposedUse> exposed_uses(const RankView& rank) {
  const auto& uses = rank.facts->collectives;
  std::vector<ExposedUse> out;
  for (size_t i = 0; i < uses.size(); ++i) {
    if (is_point_to_point(uses[i].name)) continue;
    const int32_t step = step_of(rank, uses[i]);
    if (!rank.steps.empty() && step < 0) continue;
    const int64_t wait = rank.use_wait_ns[i];
    out.push_back({&uses[i],
                   rank.use_traffic[i],
                   rank.use_kind[i],
                   step,
                   rank.use_exposed_ns[i],
                   std::max<int64_t>(wait, 0),
                   wait >= 0});
  }
  return out;
}

double slow_part(const ExposedUse& one) {
  if (one.use->bytes < kLargeMessage) return 0;
  const CollectiveKind* kind = one.kind;
  if (kind == nullptr || kind->expected_bytes_per_s <= 0 || kind->bus_bytes_per_s <= 0) return 0;
  if (kind->bus_bytes_per_s >= kSlowBus * kind->expected_bytes_per_s) return 0;
  return 1 - kind->bus_bytes_per_s / (kUsualBus * kind->expected_bytes_per_s);
}

TrafficCost cost_of(const JobView& view, Traffic traffic) {
  TrafficCost out;
  std::vector<int64_t> transfers, counts, waits;
  double duration = 0, exposed = 0, matched = 0;
  for (const RankView& rank : view.ranks) {
    std::map<int32_t, double> by_step;
    std::map<int32_t, int64_t> count, wait;
    double whole = 0;
    int64_t whole_count = 0, whole_wait = 0;
    for (const ExposedUse& one : exposed_uses(rank)) {
      if (one.traffic != traffic) continue;
      const auto moved = static_cast<double>(one.transfer_ns());
      const double kept = moved * (1 - slow_part(one));
      by_step[one.step] += kept;
      count[one.step] += 1;
      wait[one.step] += one.wait_ns;
      whole += kept;
      whole_count += 1;
      whole_wait += one.wait_ns;
      // Waiting is nobody's transfer: neither hidden nor exposed.
      duration += static_cast<double>(one.use->duration_ns - one.wait_ns);
      exposed += moved;
      matched += one.matched ? moved : 0;
    }
    transfers.push_back(usual(
        rank,
        [&](const StepFacts& s) { return static_cast<int64_t>(by_step[s.step]); },
        static_cast<int64_t>(whole)));
    counts.push_back(usual(
        rank, [&](const StepFacts& s) { return count[s.step]; }, whole_count));
    waits.push_back(usual(
        rank, [&](const StepFacts& s) { return wait[s.step]; }, whole_wait));
  }
  out.transfer_ns = median(transfers);
  out.count = median(counts);
  out.wait_ns = waits.empty() ? 0 : *std::max_element(waits.begin(), waits.end());
  out.hidden_share = duration > 0 ? 1 - exposed / duration : 0;
  out.matched_share = exposed > 0 ? matched / exposed : 0;
  return out;
}

}  // namespace vitrine

// Exposed transfer by purpose.
#include "analysis/rules/traffic.h"

#include <algorithm>

namespace vitrine {

// What is expected is what the link gives at that size; runs without fault measure 0.9 to 1.4 of
// it, transport through host memory 0.13.
const double kSlowBus = 0.5;

namespace {
// Smaller messages are bound by latency, on any link.
constexpr int64_t kLargeMessage = 4 << 20;
// What to expect once the right link is used, of its figure.
constexpr double kUsualBus = 0.8;

const CollectiveKind* kind_of(const JobFacts& job,
                              const RankFacts& rank,
                              const CollectiveUse& use) {
  const std::string group = use.group >= 0 && static_cast<size_t>(use.group) < rank.groups.size()
                                ? rank.groups[static_cast<size_t>(use.group)].name
                                : "";
  const CollectiveKind* found = nullptr;
  for (const CollectiveKind& kind : job.collective_kinds) {
    if (kind.name != use.name || kind.group != group) continue;
    const bool member =
        std::find(kind.ranks.begin(), kind.ranks.end(), rank.rank) != kind.ranks.end();
    if (kind.ranks.empty() || member) return &kind;
    found = found == nullptr ? &kind : found;
  }
  return found;
}

}  // namespace

bool computes(const JobView& view) {
  return std::any_of(view.ranks.begin(), view.ranks.end(), [](const RankView& rank) {
    return rank.compute_ns * 100 >= rank.step_ns;
  });
}

bool is_large(const CollectiveKind& kind) { return kind.bytes >= kLargeMessage; }

Traffic traffic_of(const JobFacts& job, const RankFacts& rank, const CollectiveUse& use) {
  const std::string role = group_role(job, rank, use);
  if (role == "tensor") return Traffic::kTensorParallel;
  if (use.name == "all_gather") return Traffic::kGather;
  const bool reduces =
      use.name == "all_reduce" || use.name == "reduce_scatter" || use.name == "reduce";
  if (reduces && use.phase != Phase::kForward && role != "expert" && role != "pipeline") {
    return Traffic::kGradients;
  }
  return Traffic::kOther;
}

std::vector<ExposedUse> exposed_uses(const RankView& rank) {
  const auto& uses = rank.facts->collectives;
  std::vector<ExposedUse> out;
  for (size_t i = 0; i < uses.size(); ++i) {
    if (is_point_to_point(uses[i].name)) continue;
    const int32_t step = step_of(rank, uses[i]);
    if (!rank.steps.empty() && step < 0) continue;
    const int64_t wait = rank.use_wait_ns[i];
    out.push_back({&uses[i], step, rank.use_exposed_ns[i], std::max<int64_t>(wait, 0), wait >= 0});
  }
  return out;
}

double slow_part(const JobFacts& job, const RankFacts& rank, const ExposedUse& one) {
  if (one.use->bytes < kLargeMessage) return 0;
  const CollectiveKind* kind = kind_of(job, rank, *one.use);
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
      if (traffic_of(*view.job, *rank.facts, *one.use) != traffic) continue;
      const auto moved = static_cast<double>(one.transfer_ns());
      const double kept = moved * (1 - slow_part(*view.job, *rank.facts, one));
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

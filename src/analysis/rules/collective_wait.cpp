// Rule: communication kernels are long because ranks wait for each other in them, with no one rank
// late beyond chance.
#include <algorithm>

#include "analysis/rules/gain.h"
#include "analysis/rules/rules.h"
#include "analysis/rules/waiting.h"
#include "core/format.h"

namespace vitrine::rules {

void collective_wait(const JobView& view, RuleOutput& out) {
  const JobFacts& job = *view.job;
  if (view.ranks.size() < 2) return;
  // With the work evenly spread a step would take the mean of the ranks' own work: what is lost is
  // the mean of the waiting.
  int64_t sum = 0, transfer = 0;
  for (const RankView& rank : view.ranks) {
    sum += rank.wait_ns;
    transfer += rank.transfer_ns;
  }
  const auto count = static_cast<int64_t>(view.ranks.size());
  int64_t cost = sum / count - starvation_seen_as_wait(view);
  for (const Straggler& late : job.straggler.stragglers) cost -= late.cost_ns;
  if (cost <= 0) return;

  Finding finding;
  finding.rule = "collective_wait";
  finding.confidence = 0.8;
  set_cost(finding, view, cost);
  const auto whom = waited_for(job);
  int64_t all = 0;
  for (const auto& [rank, ns] : whom) all += ns;
  // Three quarters of the waiting for one rank: name it, though no test calls it a straggler.
  const bool one = !whom.empty() && whom.front().second * 4 >= all * 3;
  const OwnReason reason = whom.empty() ? OwnReason{} : own_reason(view, whom.front().first);
  finding.title = one ? format("Waiting in collectives, mostly for rank %d", whom.front().first)
                      : std::string("Ranks wait for each other in collectives");
  finding.summary = format(
      "Ranks wait for each other for %s %s on average: waiting, not bandwidth "
      "(exposed transfer is %s).",
      time_and_share(cost, finding.share).c_str(),
      view.per(),
      format_ns(static_cast<double>(transfer / count)).c_str());
  if (reason.kind.empty()) {
    finding.cause = "The ranks reach their collectives at different times.";
  } else {
    finding.cause =
        "Most waiting is for rank " + std::to_string(whom.front().first) + ": " + reason.text + ".";
  }
  if (job.straggler.tested && job.straggler.stragglers.empty()) {
    finding.cause += " No rank is late often enough to be called a straggler.";
  } else if (!job.straggler.tested && !job.straggler.note.empty()) {
    finding.cause += " (" + job.straggler.note + ")";
  }
  const size_t shown = std::min<size_t>(view.ranks.size(), 4);
  for (size_t i = 0; i < shown; ++i) {
    const RankView& rank = view.ranks[i];
    finding.evidence.push_back({format("rank %d: %s %s waiting, %s exposed transfer",
                                       rank.rank,
                                       format_ns(static_cast<double>(rank.wait_ns)).c_str(),
                                       view.per(),
                                       format_ns(static_cast<double>(rank.transfer_ns)).c_str()),
                                rank.rank});
  }
  for (const CollectiveKind& kind : job.collective_kinds) {
    if (kind.last_arrivals.empty() || kind.wait_ns <= 0 || is_point_to_point(kind.name)) continue;
    std::vector<std::string> last;
    for (const auto& [rank, times] : kind.last_arrivals) {
      if (last.size() < 4)
        last.push_back(format("rank %d %lldx", rank, static_cast<long long>(times)));
    }
    finding.evidence.push_back({format("last to arrive in %s (%lld matched): %s",
                                       kind.name.c_str(),
                                       static_cast<long long>(kind.count),
                                       join(last, ", ").c_str())});
    if (finding.evidence.size() > shown + 1) break;
  }
  add_longest_waits(view, 2, finding.evidence);
  finding.fix = fixes_for(reason.kind);
  finding.gain = "up to " + time_and_share(cost, finding.share) + " " + view.per() +
                 " if the ranks arrive together" + predicted(view, Change::kNoWaiting);
  out.findings.push_back(std::move(finding));
}

}  // namespace vitrine::rules

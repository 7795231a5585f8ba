// Rule: the host waits for the device in mid-step and launches only then.
#include <algorithm>

#include "analysis/rules/job_view.h"
#include "analysis/rules/rules.h"
#include "core/format.h"

namespace vitrine::rules {

void host_sync(const JobFacts& job, RuleOutput& out) {
  const JobView view = view_job(job);
  const int64_t cost = common_part(
      view, [](const RankView& rank) { return rank.idle_beside_pipeline(IdleCause::kHostSync); });
  if (cost <= 0) return;

  Finding finding;
  finding.rule = "host_sync";
  finding.title = "Host synchronises with the device";
  finding.confidence = 0.8;
  set_cost(finding, view, cost);
  finding.summary = format(
      "The device is idle for %s %s after the host waited for it and only then "
      "went on to launch.",
      time_and_share(cost, finding.share).c_str(),
      view.per());
  finding.cause =
      "A value is read back, or the device is waited for, while nothing else is queued.";
  for (size_t i = 0; i < std::min<size_t>(view.ranks.size(), 4); ++i) {
    const RankView& rank = view.ranks[i];
    std::string calls;
    if (const auto whats = idle_whats(*rank.facts, IdleCause::kHostSync); !whats.empty()) {
      calls = ", mostly after " + whats.front().first;
    }
    finding.evidence.push_back(
        {format("rank %d: %s %s idle%s; the host spends %s %s in synchronising calls",
                rank.rank,
                format_ns(static_cast<double>(rank.idle_for(IdleCause::kHostSync))).c_str(),
                view.per(),
                calls.c_str(),
                format_ns(static_cast<double>(usual(
                              rank, [](const StepFacts& s) { return s.sync_ns; }, 0)))
                    .c_str(),
                view.has_steps ? "a step" : "in steps"),
         rank.rank});
  }
  add_gaps(view, IdleCause::kHostSync, 2, finding.evidence);
  finding.fix = {
      "PyTorch: no loss.item(), .cpu(), .tolist(), print(tensor) or `if tensor:` in every step; "
      "collect on the device and read every N steps",
      "torch.cuda.set_sync_debug_mode(\"warn\") names the lines that synchronise",
      "masks with torch.where instead of boolean indexing and nonzero(); "
      "tensor.to(\"cpu\", non_blocking=True) into pinned memory",
      "remove torch.cuda.synchronize() and timers that call it"};
  finding.gain = "up to " + time_and_share(cost, finding.share) + " " + view.per();
  out.findings.push_back(std::move(finding));
}

}  // namespace vitrine::rules

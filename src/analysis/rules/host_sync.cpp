// Rule: the host waits for the device in mid-step and launches only then.
#include <algorithm>

#include "analysis/rules/idle_finding.h"
#include "analysis/rules/rules.h"
#include "core/format.h"

namespace vitrine::rules {

void host_sync(const JobView& view, RuleOutput& out) {
  const int64_t cost = common_idle(view, IdleCause::kHostSync);
  if (cost <= 0) return;
  Finding finding = idle_finding(
      view,
      cost,
      {"host_sync",
       IdleCause::kHostSync,
       "Host synchronises with the device",
       "The device is idle for %s after the host waited for it and only then went on to launch.",
       "A value is read back, or the device is waited for, while nothing else is queued.",
       0.8});
  // Who waits comes before where.
  std::vector<Evidence> places = std::move(finding.evidence);
  finding.evidence.clear();
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
  finding.evidence.insert(finding.evidence.end(), places.begin(), places.end());
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

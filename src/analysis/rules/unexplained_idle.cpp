// Rule: idle time whose cause the trace does not tell. Reported, never blamed.
#include "analysis/rules/idle_finding.h"
#include "analysis/rules/rules.h"

namespace vitrine::rules {

void unexplained_idle(const JobView& view, RuleOutput& out) {
  const int64_t cost =
      common_part(view, [](const RankView& rank) { return rank.idle_for(IdleCause::kUnknown); });
  if (cost <= 0 || view.share(cost) < 0.02) return;
  Finding finding =
      idle_finding(view,
                   cost,
                   {"unexplained_idle",
                    IdleCause::kUnknown,
                    "Idle time of unknown cause",
                    "The device is idle for %s, and the trace has no launch to say why.",
                    "Host activities were not recorded, or their link to the kernels is missing.",
                    1});
  finding.severity = Severity::kNote;
  finding.fix = {
      "PyTorch: profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) records "
      "the launches"};
  out.findings.push_back(std::move(finding));
}

}  // namespace vitrine::rules

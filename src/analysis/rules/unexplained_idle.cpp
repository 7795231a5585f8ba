// Rule: idle time whose cause the trace does not tell. Reported, never blamed.
#include "analysis/rules/job_view.h"
#include "analysis/rules/rules.h"
#include "core/format.h"

namespace vitrine::rules {

void unexplained_idle(const JobFacts& job, RuleOutput& out) {
  const JobView view = view_job(job);
  const int64_t cost =
      common_part(view, [](const RankView& rank) { return rank.idle_for(IdleCause::kUnknown); });
  if (cost <= 0 || view.share(cost) < 0.02) return;

  Finding finding;
  finding.rule = "unexplained_idle";
  finding.severity = Severity::kNote;
  finding.title = "Idle time of unknown cause";
  finding.confidence = 1;
  set_cost(finding, view, cost);
  finding.summary = format("The device is idle for %s %s, and the trace has no launch to say why.",
                           time_and_share(cost, finding.share).c_str(),
                           view.per());
  finding.cause = "Host activities were not recorded, or their link to the kernels is missing.";
  add_gaps(view, IdleCause::kUnknown, 2, finding.evidence);
  finding.fix = {
      "PyTorch: profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) records "
      "the launches"};
  out.findings.push_back(std::move(finding));
}

}  // namespace vitrine::rules

// Rule: work that was launched in time is held back by another stream or an event.
#include "analysis/rules/job_view.h"
#include "analysis/rules/rules.h"
#include "core/format.h"

namespace vitrine::rules {

void stream_wait(const JobFacts& job, RuleOutput& out) {
  const JobView view = view_job(job);
  const int64_t cost =
      common_part(view, [](const RankView& rank) { return rank.idle_for(IdleCause::kStreamWait); });
  if (cost <= 0) return;

  Finding finding;
  finding.rule = "stream_wait";
  finding.title = "Launched work held back";
  finding.confidence = 0.5;
  set_cost(finding, view, cost);
  finding.summary = format(
      "For %s %s the device is idle although the next kernel had been launched: it "
      "waits for another stream, an event, or the device's own start of a kernel.",
      time_and_share(cost, finding.share).c_str(),
      view.per());
  finding.cause =
      "Dependencies between streams, or the few microseconds that a device needs between dependent "
      "kernels, many times over.";
  add_gaps(view, IdleCause::kStreamWait, 2, finding.evidence);
  finding.fix = {
      "fewer, longer kernels (fusion, torch.compile) where the gaps are microseconds each",
      "where they are long: fewer stream.wait_stream() and event waits, or the waited work "
      "launched earlier"};
  finding.gain = "part of " + time_and_share(cost, finding.share) + " " + view.per();
  out.findings.push_back(std::move(finding));
}

}  // namespace vitrine::rules

// Rule: work that was launched in time is held back by another stream or an event.
#include "analysis/rules/job_view.h"
#include "analysis/rules/rules.h"
#include "core/format.h"

namespace vitrine::rules {

namespace {

// Without the microseconds that any device needs from one kernel to the next.
int64_t held_back(const RankView& rank) {
  int64_t all = 0, between = 0;
  for (const auto& [what, ns] : idle_whats(*rank.facts, IdleCause::kStreamWait)) {
    (what == "between kernels" ? between : all) += ns;
  }
  const int64_t cause = rank.idle_for(IdleCause::kStreamWait);
  if (between <= 0) return cause;
  const double part = static_cast<double>(all) / static_cast<double>(all + between);
  return static_cast<int64_t>(part * static_cast<double>(cause));
}

}  // namespace

void stream_wait(const JobFacts& job, RuleOutput& out) {
  const JobView view = view_job(job);
  const int64_t cost = common_part(view, held_back);
  if (cost <= 0) return;

  Finding finding;
  finding.rule = "stream_wait";
  finding.title = "Launched work held back";
  finding.confidence = 0.5;
  set_cost(finding, view, cost);
  finding.summary = format(
      "For %s %s the device is idle although the next kernel had been launched: it "
      "waits for another stream or an event.",
      time_and_share(cost, finding.share).c_str(),
      view.per());
  finding.cause = "Dependencies between streams: the kernel waits for work or an event elsewhere.";
  add_gaps(view, IdleCause::kStreamWait, 2, finding.evidence);
  finding.fix = {
      "fewer stream.wait_stream() and event waits, or the waited work launched earlier",
      "work of one chain on one stream; communication launched as soon as its input is there"};
  finding.gain = "part of " + time_and_share(cost, finding.share) + " " + view.per();
  out.findings.push_back(std::move(finding));
}

}  // namespace vitrine::rules

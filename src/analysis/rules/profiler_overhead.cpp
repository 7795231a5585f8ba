// Rule: the profiler's own work in the figures. A note: it is no fault of the job.
#include <algorithm>

#include "analysis/rules/job_view.h"
#include "analysis/rules/rules.h"
#include "core/format.h"

namespace vitrine::rules {

void profiler_overhead(const JobView& view, RuleOutput& out) {
  const RankView* most = nullptr;
  for (const RankView& rank : view.ranks) {
    if (most == nullptr || rank.facts->profiler_ns > most->facts->profiler_ns) most = &rank;
  }
  if (most == nullptr || most->facts->total.span_ns <= 0) return;
  const int64_t idle = most->idle_for(IdleCause::kProfiler);
  const double host = static_cast<double>(most->facts->profiler_ns) /
                      static_cast<double>(most->facts->total.span_ns);
  // A hundredth is within what any run varies by.
  if (view.share(idle) < 0.01 && host < 0.01) return;

  Finding finding;
  finding.rule = "profiler_overhead";
  finding.severity = Severity::kNote;
  finding.ranks = {most->rank};
  finding.title = "The profiler slows what it measures";
  finding.confidence = 0.8;
  set_cost(finding, view, idle);
  finding.summary = format(
      "The host spends %s of the trace in the profiler's own work; the device is idle "
      "for it %s %s. The job runs faster than its trace.",
      percent(host).c_str(),
      time_and_share(idle, finding.share).c_str(),
      view.per());
  finding.cause =
      "Buffers of activity records are requested and flushed; stacks and shapes cost host time.";
  add_gaps(view, IdleCause::kProfiler, 1, finding.evidence);
  finding.fix = {
      "profile without with_stack and profile_memory when times matter; schedule(wait=, "
      "warmup=3, active=3) and few steps"};
  out.findings.push_back(std::move(finding));
}

}  // namespace vitrine::rules

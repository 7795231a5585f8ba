// Rule: figures that the trace distorts: clocks out of step, gaps between kernels of a replayed
// graph.
#include "analysis/rules/idle_finding.h"
#include "analysis/rules/rules.h"
#include "core/format.h"

namespace vitrine::rules {
void trace_artefacts(const JobView& view, RuleOutput& out) {
  for (const RankView& rank : view.ranks) {
    const LaunchFacts& launch = rank.facts->launch;
    // Single ones come from rounding; one in a hundred is a clock.
    if (launch.kernels > 0 && launch.before_launch * 100 >= launch.kernels) {
      Finding finding;
      finding.rule = "trace_artefacts";
      finding.severity = Severity::kNote;
      finding.title = "Clocks of host and device disagree";
      finding.confidence = 0.8;
      finding.ranks = {rank.rank};
      finding.summary = format(
          "rank %d: %lld of %lld kernels seem to begin before their launch; launch delays "
          "and idle causes are less certain.",
          rank.rank,
          static_cast<long long>(launch.before_launch),
          static_cast<long long>(launch.kernels));
      finding.cause = "The profiler's conversion between the two clocks drifts.";
      out.findings.push_back(std::move(finding));
    }
  }
  const int64_t replay = common_part(
      view, [](const RankView& rank) { return rank.idle_for(IdleCause::kGraphReplay); });
  if (replay > 0 && view.share(replay) >= 0.01) {
    Finding finding = idle_finding(
        view,
        replay,
        {"trace_artefacts",
         IdleCause::kGraphReplay,
         "Gaps between kernels of replayed graphs",
         "%s of idle time lies between kernels of one replayed CUDA graph: tracing each node makes "
         "part of it, so it is not called a bubble.",
         "Per-node tracing of graphs delays their kernels.",
         0.8,
         1});
    finding.severity = Severity::kNote;
    finding.fix = {"nsys profile --cuda-graph-trace=graph measures the graph as a whole"};
    out.findings.push_back(std::move(finding));
  }
}

}  // namespace vitrine::rules

// Rule: single steps that take much longer than the others, with what differs in them.
#include <algorithm>
#include <map>

#include "analysis/rules/job_view.h"
#include "analysis/rules/rules.h"
#include "core/format.h"

namespace vitrine::rules {
namespace {

std::vector<std::string> fixes(const std::string& cause) {
  if (cause == "allocator") {
    return {
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; equal shapes in every step (padding or "
        "buckets) so that the allocator's cache fits"};
  }
  if (cause == "input")
    return {"more DataLoader workers and a deeper prefetch_factor for the late batches"};
  if (cause == "copy")
    return {"copies to the host (checkpoints, logging) asynchronous, into pinned memory"};
  if (cause == "collective")
    return {"see which rank arrived late in that step; other jobs on the network"};
  if (cause == "host") {
    return {
        "gc.disable() with gc.collect() every N steps; checkpoints, evaluation and logging out of "
        "the "
        "step or in a thread"};
  }
  if (cause == "compute")
    return {
        "equal shapes in every step; torch.compile recompiles on new shapes "
        "(TORCH_LOGS=recompiles names them)"};
  return {
      "profile more steps around it (schedule(wait=, warmup=, active=)) to see whether it comes "
      "again"};
}

}  // namespace

void outlier_step(const JobView& view, RuleOutput& out) {
  const JobFacts& job = *view.job;
  // The ranks of a job share a slow step: the one with the largest excess stands for it.
  std::map<int32_t, const OutlierStep*> by_step;
  for (const OutlierStep& one : job.outliers) {
    const auto rank = static_cast<size_t>(one.rank_index),
               index = static_cast<size_t>(one.step_index);
    if (rank >= job.ranks.size() || index >= job.ranks[rank].steps.size()) continue;
    const OutlierStep*& kept = by_step[job.ranks[rank].steps[index].step];
    if (kept == nullptr || one.excess_ns > kept->excess_ns) kept = &one;
  }
  std::map<std::string, std::vector<const OutlierStep*>> by_cause;
  for (const auto& [step, one] : by_step) by_cause[one->cause].push_back(one);

  for (auto& [cause, steps] : by_cause) {
    Finding finding;
    finding.rule = "outlier_step";
    int64_t excess = 0;
    size_t recorded = 1;
    std::sort(
        steps.begin(), steps.end(), [](auto* a, auto* b) { return a->excess_ns > b->excess_ns; });
    for (const OutlierStep* one : steps) {
      const RankFacts& rank = job.ranks[static_cast<size_t>(one->rank_index)];
      const StepFacts& step = rank.steps[static_cast<size_t>(one->step_index)];
      recorded = std::max(recorded, rank.steps.size());
      excess += one->excess_ns;
      finding.steps.push_back(step.step);
      finding.ranks.push_back(rank.rank);
      if (finding.evidence.size() < 3) {
        finding.evidence.push_back({format("rank %d, %s: %s, %s over the usual; %s",
                                           rank.rank,
                                           step.name.c_str(),
                                           format_ns(static_cast<double>(step.duration_ns)).c_str(),
                                           format_ns(static_cast<double>(one->excess_ns)).c_str(),
                                           one->evidence.c_str()),
                                    rank.rank,
                                    step.step,
                                    step.start_ns,
                                    step.start_ns + step.duration_ns});
      }
    }
    std::sort(finding.steps.begin(), finding.steps.end());
    std::sort(finding.ranks.begin(), finding.ranks.end());
    finding.ranks.erase(std::unique(finding.ranks.begin(), finding.ranks.end()),
                        finding.ranks.end());
    set_cost(finding, view, excess / static_cast<int64_t>(recorded));
    // Warm-up ends with the first step; how often the others come is not known from a few steps.
    const bool first = cause == "first step";
    if (first || recorded < 5) finding.severity = Severity::kNote;
    finding.confidence = cause == "unknown" || cause.empty() ? 0.3 : recorded < 5 ? 0.4 : 0.7;
    finding.title =
        steps.size() == 1 ? "An outlier step" : format("%zu outlier steps", steps.size());
    if (!cause.empty() && cause != "unknown") finding.title += " (" + cause + ")";
    finding.summary = format(
        "%zu of %zu recorded steps %s up to %s longer than the usual; spread over "
        "all steps that is %s.",
        steps.size(),
        recorded,
        steps.size() == 1 ? "takes" : "take",
        format_ns(static_cast<double>(steps.front()->excess_ns)).c_str(),
        time_and_share(finding.cost_ns, finding.share).c_str());
    finding.cause = first ? "The first step warms up: allocator, autotuning, compilation."
                    : cause.empty() || cause == "unknown" ? "Not known."
                                                          : "What differs in them: " + cause + ".";
    finding.fix = fixes(cause);
    out.findings.push_back(std::move(finding));
  }
}

}  // namespace vitrine::rules

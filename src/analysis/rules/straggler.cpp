// Rule: one rank is late again and again, followed to its own reason.
#include <algorithm>

#include "analysis/rules/gain.h"
#include "analysis/rules/rules.h"
#include "analysis/rules/waiting.h"
#include "core/format.h"

namespace vitrine::rules {
namespace {

std::string words_for(const std::string& reason) {
  if (reason == "compute") return "by compute";
  if (reason == "host") return "by its host";
  if (reason == "input") return "by its input";
  if (reason == "copy") return "by copies";
  if (reason == "allocator") return "by its allocator";
  if (reason == "profiler") return "by its profiler";
  return "for a reason that the trace does not tell";
}

}  // namespace

void straggler(const JobView& view, RuleOutput& out) {
  const JobFacts& job = *view.job;
  if (job.ranks.size() < 2) return;
  if (!job.straggler.tested) {
    out.abstained.push_back("straggler: " + (job.straggler.note.empty() ? std::string("not tested")
                                                                        : job.straggler.note));
    return;
  }
  // Two stages of a pipeline take turns by design; their waiting is pipeline_bubble's.
  if (job.pipeline && job.layout.data < 2 && job.layout.tensor < 2) return;
  // Where every rank loads slowly, waiting for the slowest of them is already input_starvation.
  int64_t starved_all = INT64_MAX;
  for (const RankView& rank : view.ranks) starved_all = std::min(starved_all, rank.data_host_ns);

  // The mean over all ranks, for the ranks that wait.
  const auto count = std::max<int64_t>(2, static_cast<int64_t>(view.ranks.size()));
  for (const Straggler& late : job.straggler.stragglers) {
    Finding finding;
    finding.rule = "straggler";
    finding.ranks = {late.rank};
    int64_t cost = late.cost_ns;
    if (late.reason == "input" && !view.ranks.empty() && view.share(starved_all) >= 0.02) {
      cost = std::max<int64_t>(0, cost - starvation_seen_as_wait(view) * count / (count - 1));
    }
    set_cost(finding, view, cost);
    if (cost <= 0) finding.severity = Severity::kNote;
    finding.title = format("Straggler: rank %d, %s", late.rank, words_for(late.reason).c_str());
    finding.confidence = std::clamp(1 - 10 * late.p_value, 0.5, 0.99);
    std::vector<int64_t> transfers;
    for (const RankView& rank : view.ranks) transfers.push_back(rank.transfer_ns);
    finding.summary = format(
        "The other ranks wait in their collectives for rank %d in %lld of %lld steps, %s a step: "
        "waiting, not bandwidth (exposed transfer is %s).",
        late.rank,
        static_cast<long long>(late.steps),
        static_cast<long long>(late.of_steps),
        format_ns(static_cast<double>(late.cost_ns)).c_str(),
        format_ns(static_cast<double>(median(transfers))).c_str());
    finding.cause = late.evidence.empty()
                        ? "rank " + std::to_string(late.rank) + " is late " + words_for(late.reason)
                        : late.evidence;
    finding.evidence.push_back(
        {format("last in %lld of %lld steps; by chance that has a probability of "
                "%.2g",
                static_cast<long long>(late.steps),
                static_cast<long long>(late.of_steps),
                late.p_value),
         late.rank});
    for (const std::string& more : late.more) {
      finding.evidence.push_back({format("rank %d: %s", late.rank, more.c_str()), late.rank});
    }
    add_longest_waits(view, 2, finding.evidence);
    finding.fix = fixes_for(late.reason);
    finding.gain = format("up to %s a step once rank %d is as fast as the others",
                          time_and_share(cost, finding.share).c_str(),
                          late.rank) +
                   predicted(view, Change::kNoWaiting);
    out.findings.push_back(std::move(finding));
  }
}

}  // namespace vitrine::rules

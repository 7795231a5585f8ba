// Rule: the device waits for the next batch.
#include <algorithm>

#include "analysis/rules/gain.h"
#include "analysis/rules/job_view.h"
#include "analysis/rules/rules.h"
#include "core/format.h"

namespace vitrine::rules {

void input_starvation(const JobView& view, RuleOutput& out) {
  const JobFacts& job = *view.job;
  int64_t least_host = INT64_MAX, most_host = 0, most = 0, idle_least = INT64_MAX;
  for (const RankView& rank : view.ranks) {
    least_host = std::min(least_host, std::max(rank.data_host_ns, rank.starved_ns()));
    most_host = std::max(most_host, std::max(rank.data_host_ns, rank.starved_ns()));
    const int64_t own = rank.idle_beside_pipeline(IdleCause::kDataLoading);
    most = std::max(most, own);
    idle_least = std::min(idle_least, own);
  }
  if (most <= 0) return;

  // Where all ranks load slowly, a rank whose kernels already wait for the slowest is starved as
  // well, though its device looks busy. Where one rank alone does, its excess is the straggler's.
  const bool all_load = least_host * 2 >= most_host;
  const bool owned_by_straggler = std::any_of(job.straggler.stragglers.begin(),
                                              job.straggler.stragglers.end(),
                                              [](auto& s) { return s.reason == "input"; });
  const int64_t cost = all_load || !owned_by_straggler ? most : idle_least;
  if (cost <= 0) return;

  Finding finding;
  finding.rule = "input_starvation";
  finding.title = "Input starvation";
  finding.confidence = 0.9;
  set_cost(finding, view, cost);
  for (const RankView& rank : view.ranks) {
    if (std::max(rank.data_host_ns, rank.starved_ns()) * 2 < cost) continue;
    finding.ranks.push_back(rank.rank);
    std::string what = "data loading";
    if (const auto whats = idle_whats(*rank.facts, IdleCause::kDataLoading); !whats.empty()) {
      what = "'" + whats.front().first + "'";
    }
    finding.evidence.push_back(
        {format(
             "rank %d: the host is in %s for %s %s, the device idle for %s of it",
             rank.rank,
             what.c_str(),
             format_ns(static_cast<double>(std::max(rank.data_host_ns, rank.starved_ns()))).c_str(),
             view.per(),
             format_ns(static_cast<double>(rank.starved_ns())).c_str()),
         rank.rank});
  }
  if (finding.ranks.size() == view.ranks.size()) finding.ranks.clear();
  add_gaps(view, IdleCause::kDataLoading, 2, finding.evidence);
  finding.summary = format("The device does nothing for %s %s because the next batch is not there.",
                           time_and_share(cost, finding.share).c_str(),
                           view.per());
  finding.cause =
      "The loop fetches its batch on the host's critical path: loading and preparing one "
      "takes longer than the device's backlog lasts.";
  finding.fix = {
      "PyTorch: DataLoader(num_workers=4 or more, pin_memory=True, persistent_workers=True, "
      "prefetch_factor=4), and batch.to(device, non_blocking=True)",
      "prepare once, not every epoch: decoded, tokenised or resized samples on local disk "
      "(Vitrine: "
      "`vitrine data` writes frame caches and token shards)",
      "move augmentation to the device, or fetch the next batch in a thread while this one runs"};
  finding.gain = "up to " + time_and_share(cost, finding.share) + " " + view.per() +
                 predicted(view, Change::kInstantData);
  out.findings.push_back(std::move(finding));
}

}  // namespace vitrine::rules

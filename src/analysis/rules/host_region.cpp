// Rule: the device idles while the host is in a region that the user named, launching nothing.
#include <algorithm>

#include "analysis/rules/job_view.h"
#include "analysis/rules/rules.h"
#include "core/format.h"

namespace vitrine::rules {

void host_region(const JobFacts& job, RuleOutput& out) {
  const JobView view = view_job(job);
  const int64_t cost = common_part(
      view, [](const RankView& rank) { return rank.idle_beside_pipeline(IdleCause::kRegion); });
  if (cost <= 0) return;
  std::string region = "a named region";
  if (const auto whats = idle_whats(*view.ranks.front().facts, IdleCause::kRegion);
      !whats.empty()) {
    region = "'" + whats.front().first + "'";
  }

  Finding finding;
  finding.rule = "host_region";
  finding.title = "Device idle in " + region;
  finding.confidence = view.has_steps ? 0.7 : 0.5;  // without steps it may be start-up
  set_cost(finding, view, cost);
  finding.summary =
      format("The device is idle for %s %s while the host is in %s and launches nothing.",
             time_and_share(cost, finding.share).c_str(),
             view.per(),
             region.c_str());
  finding.cause = "Host work between the launches of a step that nothing on the device covers.";
  add_gaps(view, IdleCause::kRegion, 2, finding.evidence);
  finding.fix = {"move the region's host work to a thread, or to every N-th step",
                 "launch the next device work before it, so that both run at once"};
  finding.gain = "up to " + time_and_share(cost, finding.share) + " " + view.per();
  out.findings.push_back(std::move(finding));
}

}  // namespace vitrine::rules

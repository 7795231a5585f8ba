// Rule: the device idles while the host is in a region that the user named, launching nothing.
#include "analysis/rules/idle_finding.h"
#include "analysis/rules/rules.h"

namespace vitrine::rules {

void host_region(const JobView& view, RuleOutput& out) {
  const int64_t cost = common_idle(view, IdleCause::kRegion);
  if (cost <= 0) return;
  std::string region = "a named region";
  if (const auto whats = idle_whats(*view.ranks.front().facts, IdleCause::kRegion);
      !whats.empty()) {
    region = "'" + whats.front().first + "'";
  }
  Finding finding = idle_finding(
      view,
      cost,
      {"host_region",
       IdleCause::kRegion,
       "Device idle in " + region,
       "The device is idle for %s while the host is in " + region + " and launches nothing.",
       "Host work between the launches of a step that nothing on the device covers.",
       view.has_steps ? 0.7 : 0.5});  // without steps it may be start-up
  finding.fix = {"move the region's host work to a thread, or to every N-th step",
                 "launch the next device work before it, so that both run at once"};
  finding.gain = "up to " + time_and_share(cost, finding.share) + " " + view.per();
  out.findings.push_back(std::move(finding));
}

}  // namespace vitrine::rules

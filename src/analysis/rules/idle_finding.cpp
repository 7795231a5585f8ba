// One finding on one cause of idle time.
#include "analysis/rules/idle_finding.h"

namespace vitrine {

int64_t common_idle(const JobView& view, IdleCause cause) {
  return common_part(view, [cause](const RankView& r) { return r.idle_beside_pipeline(cause); });
}

Finding idle_finding(const JobView& view, int64_t cost_ns, const IdleWords& words) {
  Finding finding;
  finding.rule = words.rule;
  finding.title = words.title;
  finding.confidence = words.confidence;
  set_cost(finding, view, cost_ns);
  finding.summary = words.summary;
  const std::string cost = time_and_share(cost_ns, finding.share) + " " + view.per();
  if (const size_t at = finding.summary.find("%s"); at != std::string::npos) {
    finding.summary.replace(at, 2, cost);
  }
  finding.cause = words.why;
  add_gaps(view, words.cause, words.places, finding.evidence);
  return finding;
}

}  // namespace vitrine

// What the rules on one cause of idle time share: the common part, its words, the places to look
// at.
#pragma once

#include <string>

#include "analysis/rules/job_view.h"

namespace vitrine {

struct IdleWords {
  const char* rule;
  IdleCause cause;
  std::string title;
  std::string summary;  // "%s" once: "12.0 ms (3.4 %) a step"
  std::string why;
  double confidence = 0.5;
  size_t places = 2;  // longest gaps shown, a rank
};

// Idle time of that cause that nearly every rank has, beside what pipeline_bubble charges.
int64_t common_idle(const JobView& view, IdleCause cause);

// Without fixes and gain. `cost_ns` is what the rule charges.
Finding idle_finding(const JobView& view, int64_t cost_ns, const IdleWords& words);

}  // namespace vitrine

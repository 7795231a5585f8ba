// A diagnosis: what is wrong, how much it costs, how that is known, and what to change.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/job_facts.h"

namespace vitrine {

enum class Severity : uint8_t { kNote, kWarning, kCritical };
const char* severity_name(Severity severity);          // "note", "warning", "critical"
Severity severity_from_name(const std::string& name);  // throws ConfigError

// A place in the timeline to jump to. Times of the rank's own clock.
struct Evidence {
  std::string text;  // with numbers
  int32_t rank = -1;
  int32_t step = -1;
  int64_t begin_ns = 0, end_ns = 0;  // equal: no place
};

struct Finding {
  std::string rule;  // "input_starvation"
  Severity severity = Severity::kWarning;
  std::vector<int32_t> ranks;  // that it concerns; empty: all
  std::vector<int32_t> steps;  // empty: all
  int64_t cost_ns = 0;    // per step (or trace), of the rank that bounds the job; 0: not of time
  double share = 0;       // of the step
  double confidence = 0;  // 0 .. 1
  std::string title;      // a few words: "Input starvation"
  std::string summary;    // the phenomenon, one or two sentences with numbers
  std::string cause;
  std::vector<Evidence> evidence;
  std::vector<std::string> fix;  // one way each, in words of PyTorch, DeepSpeed or Vitrine
  std::string gain;              // estimated, in words; "" = not estimated
};

// A rule looks at one phenomenon; it adds nothing where it is absent or where the facts to know are
// missing (then it may say so in `abstained`: "rule: reason").
struct RuleOutput {
  std::vector<Finding> findings;
  std::vector<std::string> abstained;
};
struct JobView;  // of rules/job_view.h, built once for all rules
struct Rule {
  const char* name;
  const char* phenomenon;  // one line for the list of rules
  void (*run)(const JobView& view, RuleOutput& out);
};
const std::vector<Rule>& all_rules();

struct Diagnosis {
  std::vector<Finding> findings;  // most costly first, notes last
  std::vector<std::string> abstained;
  // "Nothing worth changing: ..." when no finding is a warning, with the reason in numbers.
  std::string verdict;
  bool per_step = false;  // what costs and shares are of: a usual step, or the whole trace
};
// Runs all rules. Findings about time below 2 % of the step become notes, those below 0.2 % are
// dropped. Sorted by cost, notes after all others.
Diagnosis diagnose(const JobFacts& job);

}  // namespace vitrine

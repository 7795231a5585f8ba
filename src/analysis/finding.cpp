// Running the rules, ranking what they find, and the verdict in words.
#include "analysis/finding.h"

#include <algorithm>

#include "analysis/rules/rules.h"
#include "analysis/rules/traffic.h"
#include "core/error.h"
#include "core/format.h"

namespace vitrine {
namespace {

// Under this share of the step a change is hardly measurable between two runs.
constexpr double kNoteShare = 0.02;
// Under this share of the step a finding about time isn't even a note.
constexpr double kForgetShare = 0.002;
// From this share on, a finding outweighs the usual run-to-run differences many times over.
constexpr double kCriticalShare = 0.2;
// A critical finding fails a build: it must be more than an inference.
constexpr double kCriticalConfidence = 0.6;

void grade(Finding& finding) {
  if (finding.cost_ns <= 0 || finding.severity == Severity::kNote) return;  // the rule's own word
  finding.severity = finding.share < kNoteShare ? Severity::kNote
                     : finding.share >= kCriticalShare && finding.confidence >= kCriticalConfidence
                         ? Severity::kCritical
                         : Severity::kWarning;
}

bool before(const Finding& a, const Finding& b) {
  const bool note_a = a.severity == Severity::kNote, note_b = b.severity == Severity::kNote;
  if (note_a != note_b) return note_b;
  if (a.cost_ns != b.cost_ns) return a.cost_ns > b.cost_ns;
  if (a.severity != b.severity) return a.severity > b.severity;
  return a.rule < b.rule;
}

// "device busy 95.2 %, computing 94.0 %, 84.3 % of communication hidden": means over the ranks.
std::string state_in_numbers(const JobView& view) {
  double span = 0, compute = 0, idle = 0, communication = 0, overlap = 0;
  for (const RankView& rank : view.ranks) {
    const Breakdown& all = rank.facts->total;
    span += static_cast<double>(all.span_ns);
    compute += static_cast<double>(all.compute_ns);
    idle += static_cast<double>(all.idle_ns);
    communication += static_cast<double>(all.communication_ns);
    overlap += static_cast<double>(all.overlap_ns);
  }
  if (span <= 0) return "nothing ran on a device";
  std::string text = "the device is busy " + percent(1 - idle / span) +
                     " of the time and computes " + percent(compute / span);
  if (communication > 0) {
    text +=
        "; " + percent(overlap / communication) + " of the communication is hidden behind compute";
  } else {
    text += "; there is no communication in the trace";
  }
  return text;
}

std::string verdict_of(const JobView& view, const std::vector<Finding>& findings) {
  const auto worth = static_cast<size_t>(
      std::count_if(findings.begin(), findings.end(), [](const Finding& finding) {
        return finding.severity != Severity::kNote;
      }));
  if (worth == 0) {
    if (view.ranks.empty()) {
      return "Not judged: no work on a device was recorded, so nothing can be said of its use.";
    }
    if (!computes(view)) {
      return "Not judged: next to no compute was recorded (" + state_in_numbers(view) + ").";
    }
    return "Nothing worth changing: " + state_in_numbers(view) + ".";
  }
  const Finding& first = findings.front();
  std::string text = "First: " + first.title;
  if (first.cost_ns > 0) {
    text += ", " + time_and_share(first.cost_ns, first.share) + " " + view.per();
  }
  text += format("; %zu finding%s worth acting on", worth, worth == 1 ? "" : "s");
  if (!view.ranks.empty()) text += "; " + state_in_numbers(view);
  return text + ".";
}

}  // namespace

const char* severity_name(Severity severity) {
  switch (severity) {
    case Severity::kNote:
      return "note";
    case Severity::kWarning:
      return "warning";
    case Severity::kCritical:
      return "critical";
  }
  return "unknown";
}

Severity severity_from_name(const std::string& name) {
  for (const Severity severity : {Severity::kNote, Severity::kWarning, Severity::kCritical}) {
    if (name == severity_name(severity)) return severity;
  }
  throw ConfigError("severity '" + name + "' is not known: expected note, warning or critical");
}

const std::vector<Rule>& all_rules() {
  static const std::vector<Rule> all = {
      {"input_starvation", "the device waits for the next batch", rules::input_starvation},
      {"launch_bound", "the host launches too slowly for the device", rules::launch_bound},
      {"host_sync", "the host waits for the device in mid-step", rules::host_sync},
      {"host_region", "the device idles while the host is in a named region", rules::host_region},
      {"stream_wait", "launched work is held back by another stream", rules::stream_wait},
      {"unexplained_idle", "idle time whose cause was not recorded", rules::unexplained_idle},
      {"dominant_kernels", "a few kernels hold most of the compute", rules::dominant_kernels},
      {"no_tensor_cores", "matrix products run without tensor cores", rules::no_tensor_cores},
      {"exposed_copies", "copies that nothing hides", rules::exposed_copies},
      {"exposed_gradient_sync",
       "gradient synchronisation not hidden behind backward",
       rules::exposed_gradient_sync},
      {"exposed_communication", "other communication not hidden", rules::exposed_communication},
      {"slow_collective", "collectives far below what the link can do", rules::slow_collective},
      {"islands", "process groups that cross NVLink islands", rules::islands},
      {"multi_node", "traffic between hosts on a poor path", rules::multi_node},
      {"tensor_parallel_wide",
       "tensor parallelism too wide or across slow links",
       rules::tensor_parallel_wide},
      {"straggler", "one rank is late again and again", rules::straggler},
      {"collective_wait", "ranks wait for each other in collectives", rules::collective_wait},
      {"pipeline_bubble", "pipeline stages wait for each other", rules::pipeline_bubble},
      {"outlier_step", "single steps much longer than the others", rules::outlier_step},
      {"throttled_card", "a card that runs below its speed", rules::throttled_card},
      {"memory_edge", "memory almost full", rules::memory_edge},
      {"memory_fragmentation", "memory lost to fragments", rules::memory_fragmentation},
      {"memory_imbalance", "ranks need unequal memory", rules::memory_imbalance},
      {"sharding_without_effect", "sharding that saves no memory", rules::sharding_without_effect},
      {"recompute_unneeded", "activations recomputed in backward", rules::recompute_unneeded},
      {"profiler_overhead", "the profiler slows what it measures", rules::profiler_overhead},
      {"trace_artefacts", "figures that the trace distorts", rules::trace_artefacts},
  };
  return all;
}

Diagnosis diagnose(const JobFacts& job) {
  RuleOutput out;
  const JobView view = view_job(job);
  for (const Rule& rule : all_rules()) rule.run(view, out);
  std::erase_if(out.findings, [](const Finding& finding) {
    return finding.cost_ns > 0 && finding.share < kForgetShare;
  });
  for (Finding& finding : out.findings) grade(finding);
  std::stable_sort(out.findings.begin(), out.findings.end(), before);
  Diagnosis diagnosis;
  diagnosis.per_step = view.has_steps;
  diagnosis.verdict = verdict_of(view, out.findings);
  diagnosis.findings = std::move(out.findings);
  diagnosis.abstained = std::move(out.abstained);
  return diagnosis;
}

}  // namespace vitrine

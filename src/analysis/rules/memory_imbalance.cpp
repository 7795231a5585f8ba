// Rule: ranks of one job need unequal memory, so that one rank sets the batch for all.
#include <algorithm>

#include "analysis/rules/job_view.h"
#include "analysis/rules/rules.h"
#include "core/format.h"

namespace vitrine::rules {
namespace {

constexpr double kUnequal = 1.25;  // a quarter more could be a quarter more batch
constexpr int64_t kLeast = int64_t{1} << 30;

}  // namespace

void memory_imbalance(const JobView& view, RuleOutput& out) {
  const JobFacts& job = *view.job;
  std::vector<const RankFacts*> known;
  for (const RankFacts& rank : job.ranks) {
    if (rank.memory.known && rank.memory.peak_allocated > 0) known.push_back(&rank);
  }
  if (known.size() < 2) return;
  const auto less = [](const RankFacts* a, const RankFacts* b) {
    return a->memory.peak_allocated < b->memory.peak_allocated;
  };
  const RankFacts* least = *std::min_element(known.begin(), known.end(), less);
  const RankFacts* most = *std::max_element(known.begin(), known.end(), less);
  const int64_t difference = most->memory.peak_allocated - least->memory.peak_allocated;
  const double ratio = static_cast<double>(most->memory.peak_allocated) /
                       static_cast<double>(least->memory.peak_allocated);
  if (ratio < kUnequal || difference < kLeast) return;

  Finding finding;
  finding.rule = "memory_imbalance";
  finding.ranks = {most->rank};
  finding.title = "Unequal memory over ranks";
  finding.confidence = 0.9;
  const bool needed =
      most->memory.capacity > 0 && most->memory.peak_allocated * 10 > most->memory.capacity * 7;
  finding.severity = needed ? Severity::kWarning : Severity::kNote;
  finding.summary = format("Rank %d peaks at %s, rank %d at %s: %.2f times.",
                           most->rank,
                           format_bytes(static_cast<double>(most->memory.peak_allocated)).c_str(),
                           least->rank,
                           format_bytes(static_cast<double>(least->memory.peak_allocated)).c_str(),
                           ratio);
  for (const RankFacts* rank : {most, least}) {
    finding.evidence.push_back({format("peak of rank %d", rank->rank),
                                rank->rank,
                                -1,
                                rank->memory.peak_time_ns,
                                rank->memory.peak_time_ns + 1});
  }
  if (job.layout.pipeline > 1) {
    finding.cause =
        "A pipeline: early stages hold more micro-batches in flight, the last the output head.";
    finding.fix = {"fewer layers on the stage that peaks, or recomputation on that stage alone",
                   "1F1B instead of GPipe: at most p micro-batches in flight"};
  } else {
    finding.cause = "Unequal data (lengths, experts), unsharded parts, or extra work on one rank.";
    finding.fix = {"batches by tokens rather than samples; balanced experts",
                   "map_location=\"cpu\" when loading checkpoints; no extra tensors on rank 0"};
  }
  out.findings.push_back(std::move(finding));
}

}  // namespace vitrine::rules

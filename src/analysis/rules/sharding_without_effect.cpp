// Rule: sharding that was set up and saves no memory.
#include <algorithm>

#include "analysis/rules/rules.h"
#include "analysis/rules/traffic.h"
#include "core/format.h"

namespace vitrine::rules {
namespace {

// Bytes that a rank gathers in the forward pass of a usual step: one copy of what is sharded.
int64_t gathered_in_forward(const RankView& rank) {
  std::map<int32_t, int64_t> by_step;
  for (const ExposedUse& one : exposed_uses(rank)) {
    if (one.use->name.starts_with("all_gather") && one.use->phase == Phase::kForward) {
      by_step[one.step] += one.use->bytes;
    }
  }
  return usual(
      rank, [&](const StepFacts& s) { return by_step[s.step]; }, 0);
}

}  // namespace

void sharding_without_effect(const JobView& view, RuleOutput& out) {
  const JobFacts& job = *view.job;
  if (!job.layout.data_sharded && !job.layout.sharded_alone) return;
  Finding finding;
  finding.rule = "sharding_without_effect";
  finding.title = "Sharding without effect";
  finding.fix = {
      "FSDP2: fully_shard(model, mesh=...) over a mesh dimension of more than one rank, block by "
      "block before the root, and the optimizer created afterwards",
      "DeepSpeed: \"zero_optimization\": {\"stage\": 1, 2 or 3} and the engine's own optimizer; "
      "Vitrine: the same key in the run file"};
  if (job.layout.sharded_alone) {
    finding.confidence = 0.7;
    finding.summary =
        "Parameters are sharded, but over groups of a single rank: every rank holds all of "
        "them and still pays for the gathers.";
    finding.evidence.push_back(
        {"all-gathers and reduce-scatters in a data-parallel group of size 1"});
    finding.cause = "The mesh dimension that shards has size one.";
    out.findings.push_back(std::move(finding));
    return;
  }
  bool category = false;
  for (const RankView& rank : view.ranks) {
    const MemoryFacts& memory = rank.facts->memory;
    if (!memory.known || !memory.category_known) continue;
    category = true;
    const int64_t whole = gathered_in_forward(rank);
    const int64_t own =
        memory.at_peak.by_category[static_cast<size_t>(MemoryCategory::kParameters)];
    // Shards in fp32 of parameters gathered in bf16 are 2/n of the gathered bytes: from four ranks
    // on a rank that holds nine tenths of them holds everything.
    if (whole <= 0 || job.layout.data < 4 || own * 10 < whole * 9) continue;
    finding.ranks.push_back(rank.rank);
    finding.evidence.push_back(
        {format("rank %d keeps %s of parameters; one copy of the model is %s",
                rank.rank,
                format_bytes(static_cast<double>(own)).c_str(),
                format_bytes(static_cast<double>(whole)).c_str()),
         rank.rank,
         -1,
         memory.peak_time_ns,
         memory.peak_time_ns + 1});
  }
  if (!category && !view.ranks.empty()) {
    out.abstained.push_back(
        "sharding_without_effect: memory by category is not known, so a shard can't be told from a "
        "copy");
  }
  if (finding.ranks.empty()) return;
  finding.confidence = 0.6;
  finding.summary = format(
      "Parameters are gathered as if sharded over %d ranks, yet a rank holds nearly all "
      "of them all the time.",
      job.layout.data);
  finding.cause =
      "Gathered parameters are never released (reshard_after_forward=False, outside references "
      "to full parameters), or the model was wrapped whole after the optimizer was made.";
  out.findings.push_back(std::move(finding));
}

}  // namespace vitrine::rules

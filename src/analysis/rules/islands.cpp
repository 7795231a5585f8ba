// Rule: process groups whose cards lie in several NVLink islands of one host.
#include <algorithm>

#include "analysis/rules/job_view.h"
#include "analysis/rules/links.h"
#include "analysis/rules/rules.h"
#include "core/format.h"

namespace vitrine::rules {

void islands(const JobView& view, RuleOutput& out) {
  const JobFacts& job = *view.job;
  if (job.topologies.empty()) return;  // nothing is asked of jobs that gave no topology
  if (job.topologies.size() > 1) {
    out.abstained.push_back(
        "islands: several topologies were given, and which rank runs on which is not known");
    return;
  }
  const Topology& topology = job.topologies.front();
  const auto all = topology.nvlink_islands();
  const bool has_nvlink =
      std::any_of(all.begin(), all.end(), [](const auto& island) { return island.size() > 1; });
  if (all.size() < 2 || !has_nvlink) return;

  std::vector<std::string> names;
  for (const auto& island : all) {
    std::vector<std::string> cards;
    for (const int32_t card : island) {
      cards.push_back(topology.gpus[static_cast<size_t>(card)]);
    }
    names.push_back("{" + join(cards, ", ") + "}");
  }
  Finding finding;
  finding.rule = "islands";
  finding.title = "Groups across NVLink islands";
  finding.confidence = 0.8;
  bool tensor = false, any = false;
  for (const LayoutFacts::Group& group : job.layout.groups) {
    if (group.uses == 0 || group.ranks.size() < 2) continue;
    const size_t touched = islands_of(job, group.ranks);
    if (touched < 2) continue;
    any = true;
    tensor = tensor || group.role == "tensor" || group.role == "expert";
    finding.evidence.push_back(
        {format("group '%s' (%s) of %s: cards in %zu islands, %lld collectives, %s",
                group.name.c_str(),
                group.role.c_str(),
                rank_list(group.ranks).c_str(),
                touched,
                static_cast<long long>(group.uses),
                format_bytes(static_cast<double>(group.bytes)).c_str())});
  }
  if (!any) return;
  // Their time is charged by the rules on communication; this one says what shape would mend it.
  finding.severity = tensor ? Severity::kWarning : Severity::kNote;
  finding.evidence.push_back({"islands of " + topology.source + ": " + join(names, " ")});
  finding.summary = format(
      "The cards form %zu NVLink islands, and groups that communicate span several "
      "of them: their traffic takes the slower way between.",
      all.size());
  finding.cause = "Ranks were grouped by number, not by link.";
  finding.fix = {
      "keep tensor and expert groups within " + names.front() +
          ": tensor degree at most the island's size, ranks ordered by CUDA_VISIBLE_DEVICES",
      "data parallel in two levels, sharded within an island and replicated across: FSDP2 "
      "fully_shard "
      "with mesh=init_device_mesh(\"cuda\", (islands, cards of an island)); DeepSpeed "
      "\"zero_hpz_partition_size\" or \"mics_shard_size\" = the island's size",
      "pipeline stages across the islands: they send least"};
  finding.gain = "";
  out.findings.push_back(std::move(finding));
}

}  // namespace vitrine::rules

// Rule: tensor parallelism whose collectives hold up the step, or that leaves the fast links.
#include <algorithm>

#include "analysis/rules/links.h"
#include "analysis/rules/rules.h"
#include "analysis/rules/traffic.h"
#include "core/format.h"

namespace vitrine::rules {

void tensor_parallel_wide(const JobView& view, RuleOutput& out) {
  const JobFacts& job = *view.job;
  if (job.layout.tensor < 2 || view.ranks.empty()) return;
  const TrafficCost cost = cost_of(view, Traffic::kTensorParallel);
  bool hosts = false, apart = false;
  for (const LayoutFacts::Group& group : job.layout.groups) {
    if (group.role != "tensor") continue;
    hosts = hosts || spans_hosts(job, group.ranks);
    apart = apart || islands_of(job, group.ranks) > 1;
  }
  if (cost.transfer_ns <= 0) return;

  Finding finding;
  finding.rule = "tensor_parallel_wide";
  finding.title = hosts   ? "Tensor parallelism across hosts"
                  : apart ? "Tensor parallelism across NVLink islands"
                          : "Tensor parallelism too wide";
  finding.confidence = (hosts || apart ? 0.9 : 0.6) * (job.layout.confidence == "guess" ? 0.6 : 1);
  set_cost(finding, view, cost.transfer_ns);
  // Its collectives stand between dependent products: some exposure is the price of the layout.
  if (finding.share < 0.1 && !hosts && !apart) finding.severity = Severity::kNote;
  finding.summary = format(
      "Collectives of the tensor-parallel groups (degree %d) hold up the step for "
      "%s %s.",
      job.layout.tensor,
      time_and_share(cost.transfer_ns, finding.share).c_str(),
      view.per());
  finding.evidence.push_back(
      {format("%lld such collectives %s on each rank, %s of their transfer hidden",
              static_cast<long long>(cost.count),
              view.per(),
              percent(cost.hidden_share).c_str())});
  finding.cause = hosts ? "Tensor groups span hosts: every block's activations cross the network."
                  : apart
                      ? "Tensor groups span NVLink islands: every block's activations cross the "
                        "slower way."
                      : "Each rank's part of a product is too small for the activations that must "
                        "be exchanged after it.";
  finding.fix = {
      format("tensor degree %d or less, the freed factor to data or pipeline parallelism",
             std::max(1, job.layout.tensor / 2)),
      "sequence parallelism beside it (Megatron-LM --sequence-parallel; PyTorch "
      "SequenceParallel()) and "
      "overlap: --tp-comm-overlap, torch._inductor.config._micro_pipeline_tp = True"};
  if (hosts || apart) {
    finding.fix.insert(finding.fix.begin(),
                       "number the ranks so that tensor groups are the fastest dimension within a "
                       "host's island: init_device_mesh(..., (data, tensor))");
  }
  finding.gain = "part of " + time_and_share(cost.transfer_ns, finding.share) + " " + view.per();
  out.findings.push_back(std::move(finding));
}

}  // namespace vitrine::rules

// Rule: communication that nothing hides and that is neither of gradients nor tensor parallel:
// parameter gathers, all-to-all, broadcasts. So that no exposed time goes unreported.
#include <algorithm>

#include "analysis/rules/gain.h"
#include "analysis/rules/rules.h"
#include "analysis/rules/traffic.h"
#include "core/format.h"

namespace vitrine::rules {
namespace {

void report(const JobView& view, Traffic traffic, RuleOutput& out) {
  const TrafficCost cost = cost_of(view, traffic);
  if (cost.transfer_ns <= 0) return;
  const bool gather = traffic == Traffic::kGather;
  Finding finding;
  finding.rule = "exposed_communication";
  finding.title = gather ? "Parameter gathers exposed" : "Communication exposed";
  finding.confidence = cost.matched_share > 0.5 ? 0.8 : 0.4;
  set_cost(finding, view, cost.transfer_ns);

  std::map<std::string, std::pair<int64_t, int64_t>> by_name;  // exposed transfer, times
  const RankView& rank = view.ranks.front();
  const ExposedUse* longest = nullptr;
  const std::vector<ExposedUse> uses = exposed_uses(rank);
  for (const ExposedUse& one : uses) {
    if (one.traffic != traffic) continue;
    auto& [ns, times] = by_name[one.use->name.empty() ? "communication" : one.use->name];
    ns += one.transfer_ns();
    ++times;
    if (longest == nullptr || one.transfer_ns() > longest->transfer_ns()) longest = &one;
  }
  std::string most;
  int64_t most_ns = -1;
  for (const auto& [name, sums] : by_name) {
    if (sums.first > most_ns) most = name, most_ns = sums.first;
    finding.evidence.push_back({format("rank %d: %lld x %s, %s exposed transfer %s",
                                       rank.rank,
                                       static_cast<long long>(sums.second),
                                       name.c_str(),
                                       format_ns(static_cast<double>(sums.first)).c_str(),
                                       view.has_steps ? "in the judged steps" : view.per()),
                                rank.rank});
  }
  if (longest != nullptr) {
    finding.evidence.push_back(
        {format("rank %d: the longest, %s, exposed for %s",
                rank.rank,
                sized_name(*longest->use).c_str(),
                format_ns(static_cast<double>(longest->transfer_ns())).c_str()),
         rank.rank,
         longest->use->step,
         longest->use->start_ns,
         longest->use->start_ns + longest->use->duration_ns});
  }
  finding.summary =
      format("%s are exposed for %s %s; compute hides %s of their transfer.",
             gather ? "Gathers of parameters" : ("Collectives (mostly " + most + ")").c_str(),
             time_and_share(cost.transfer_ns, finding.share).c_str(),
             view.per(),
             percent(cost.hidden_share).c_str());
  if (cost.matched_share <= 0.5) {
    finding.summary +=
        " Other ranks' traces are missing, so waiting for them may be in this figure.";
  }
  if (gather) {
    finding.cause =
        "A block's parameters arrive later than its turn comes: gathered too late, or too "
        "much to gather for so little compute.";
    finding.fix = {
        "FSDP2: module.set_modules_to_forward_prefetch(...) and "
        "set_modules_to_backward_prefetch(...); "
        "FSDP1: forward_prefetch=True, backward_prefetch=BackwardPrefetch.BACKWARD_PRE",
        "where memory allows: reshard_after_forward=False (ZeRO-2 instead of ZeRO-3), or sharding "
        "within one host only (HSDP; DeepSpeed \"zero_hpz_partition_size\")",
        "DeepSpeed: raise \"stage3_prefetch_bucket_size\", \"stage3_max_live_parameters\"; a "
        "larger "
        "batch gives each gather more compute to hide behind"};
  } else if (most.starts_with("all_to_all") || most == "send_receive") {
    finding.cause =
        "The exchange between experts or embedding tables stands between dependent work.";
    finding.fix = {
        "overlap it with independent work: two micro-batches in turn, or shared experts "
        "beside the exchange (DeepEP)",
        "fewer bytes: bf16 or fp8 activations, a smaller capacity factor, experts grouped "
        "within a host"};
  } else {
    finding.cause =
        "Dependent work waits for the collective, or it runs on the stream that computes.";
    finding.fix = {"launch it earlier with async_op=True and wait just before its result is used",
                   "join small collectives into one (flattened buffers, "
                   "torch.distributed._coalescing_manager)"};
  }
  finding.gain = "up to " + time_and_share(cost.transfer_ns, finding.share) + " " + view.per() +
                 predicted(view, Change::kFasterCommunication);
  out.findings.push_back(std::move(finding));
}

}  // namespace

void exposed_communication(const JobView& view, RuleOutput& out) {
  if (view.ranks.empty() || !computes(view)) return;
  report(view, Traffic::kGather, out);
  report(view, Traffic::kOther, out);
}

}  // namespace vitrine::rules

// Rule: gradient synchronisation that backward does not hide, and why: buckets, overlap, or
// accumulation that synchronises every micro-batch.
#include <algorithm>
#include <set>

#include "analysis/rules/gain.h"
#include "analysis/rules/rules.h"
#include "analysis/rules/traffic.h"
#include "core/format.h"

namespace vitrine::rules {
namespace {

// The reductions of one usual step of a rank, in order.
std::vector<ExposedUse> reductions_of_a_step(const RankView& rank) {
  std::map<int32_t, std::vector<ExposedUse>> by_step;
  for (const ExposedUse& one : exposed_uses(rank)) {
    if (one.traffic != Traffic::kGradients) continue;
    by_step[one.step].push_back(one);
  }
  std::vector<ExposedUse> usual_step;
  std::vector<int64_t> counts;
  for (const auto& [step, uses] : by_step) counts.push_back(static_cast<int64_t>(uses.size()));
  for (const auto& [step, uses] : by_step) {
    if (static_cast<int64_t>(uses.size()) == median(counts)) usual_step = uses;
  }
  return usual_step;
}

// How often the same sequence of different buckets comes again within a step: passes of backward
// that each synchronised all gradients.
size_t passes(const std::vector<ExposedUse>& uses) {
  std::vector<int64_t> sizes;
  for (const ExposedUse& one : uses) {
    if (one.use->name == "all_reduce" && one.use->bytes >= 1 << 16) sizes.push_back(one.use->bytes);
  }
  for (size_t period = 2; period * 2 <= sizes.size(); ++period) {
    if (sizes.size() % period != 0) continue;
    bool repeats = true;
    for (size_t i = period; i < sizes.size() && repeats; ++i)
      repeats = sizes[i] == sizes[i - period];
    const std::set<int64_t> different(sizes.begin(),
                                      sizes.begin() + static_cast<ptrdiff_t>(period));
    if (repeats && different.size() > 1) return sizes.size() / period;
  }
  return 1;
}

struct Cause {
  std::string title, text;
  std::vector<std::string> fix;
};

const char* kBucketFix =
    "PyTorch: DistributedDataParallel(bucket_cap_mb=25, gradient_as_bucket_view=True): buckets are "
    "reduced while backward goes on; DeepSpeed: \"reduce_bucket_size\" near 5e7 with "
    "\"overlap_comm\": true";

Cause cause_of(const std::vector<ExposedUse>& uses, double hidden) {
  int64_t large = 0, bytes = 0, exposed = 0, last = 0;
  for (const ExposedUse& one : uses) {
    bytes = std::max(bytes, one.use->bytes);
  }
  for (const ExposedUse& one : uses) {
    large += one.use->bytes * 10 >= bytes;
    exposed += one.transfer_ns();
    last = one.transfer_ns();
  }
  if (const size_t times = passes(uses); times > 1) {
    return {"Gradients synchronised every micro-batch",
            format("The same buckets are reduced %zu times a step: gradient accumulation without "
                   "no_sync.",
                   times),
            {"PyTorch: with model.no_sync(): around all micro-batches but the last (FSDP2: "
             "set_requires_gradient_sync(False))",
             "DeepSpeed and Vitrine do so by themselves: set gradient_accumulation_steps"}};
  }
  if (large == 1 && bytes > 0) {
    return {
        "Gradient sync in one bucket",
        format("All gradients are in a single bucket of %s, so its reduction can begin only when "
               "backward has ended: overlap %s.",
               format_bytes(static_cast<double>(bytes)).c_str(),
               percent(hidden).c_str()),
        {kBucketFix}};
  }
  if (hidden < 0.1) {
    return {"Gradient sync without overlap",
            format("%zu reductions a step, and backward hides %s of them: they are launched after "
                   "backward, or on the stream that computes.",
                   uses.size(),
                   percent(hidden).c_str()),
            {"PyTorch: DistributedDataParallel or fully_shard instead of all_reduce calls after "
             "backward",
             "DeepSpeed and Vitrine: \"overlap_comm\": true (Vitrine's default); Megatron-LM: "
             "--overlap-grad-reduce"}};
  }
  // Most of what is exposed comes after the last gradient is there: its bucket is too large.
  if (exposed > 0 && last * 10 >= exposed * 6) {
    return {
        "Last gradient bucket exposed",
        "The last bucket holds the first layers' gradients, ready only when backward ends; "
        "nothing is left to hide it.",
        {"PyTorch: a smaller bucket_cap_mb shortens the last bucket; keep large embeddings out of "
         "it (they come last in backward)",
         "accumulate gradients over more micro-batches: one reduction for more compute"}};
  }
  return {"Gradient sync partly exposed",
          "Reductions take longer than the backward they run beside.",
          {"accumulate gradients over more micro-batches, or a larger batch for each device",
           "reduce in bf16: DDP's bf16_compress_hook, FSDP2's MixedPrecisionPolicy(reduce_dtype="
           "torch.bfloat16); DeepSpeed: \"communication_data_type\": \"bf16\"",
           kBucketFix}};
}

}  // namespace

void exposed_gradient_sync(const JobView& view, RuleOutput& out) {
  const TrafficCost cost = cost_of(view, Traffic::kGradients);
  if (cost.transfer_ns <= 0 || cost.count == 0) return;
  if (!computes(view)) {
    out.abstained.push_back(
        "exposed_gradient_sync: the recording has next to no compute to hide behind");
    return;
  }
  const std::vector<ExposedUse> uses = reductions_of_a_step(view.ranks.front());
  const Cause cause = cause_of(uses, cost.hidden_share);

  Finding finding;
  finding.rule = "exposed_gradient_sync";
  finding.title = cause.title;
  finding.confidence = cost.matched_share > 0.5 ? 0.9 : 0.5;
  set_cost(finding, view, cost.transfer_ns);
  finding.summary =
      format("Gradient synchronisation is exposed for %s %s; backward hides %s of its transfer.",
             time_and_share(cost.transfer_ns, finding.share).c_str(),
             view.per(),
             percent(cost.hidden_share).c_str());
  if (cost.matched_share <= 0.5) {
    finding.summary +=
        " Other ranks' traces are missing, so waiting for them may be in this figure.";
  }
  finding.cause = cause.text;
  finding.fix = cause.fix;
  std::vector<ExposedUse> longest = uses;
  std::sort(longest.begin(), longest.end(), [](const ExposedUse& a, const ExposedUse& b) {
    return a.transfer_ns() > b.transfer_ns();
  });
  longest.resize(std::min<size_t>(longest.size(), 3));
  for (const ExposedUse& one : longest) {
    finding.evidence.push_back(
        {format("rank %d: %s takes %s, %s of it exposed transfer, %s exposed waiting",
                view.ranks.front().rank,
                sized_name(*one.use).c_str(),
                format_ns(static_cast<double>(one.use->duration_ns)).c_str(),
                format_ns(static_cast<double>(one.transfer_ns())).c_str(),
                format_ns(static_cast<double>(one.wait_ns)).c_str()),
         view.ranks.front().rank,
         one.use->step,
         one.use->start_ns,
         one.use->start_ns + one.use->duration_ns});
  }
  if (cost.wait_ns > cost.transfer_ns) {
    finding.evidence.push_back(
        {format("beside it up to %s %s in the same collectives is waiting for "
                "other ranks, which no bucket size mends",
                format_ns(static_cast<double>(cost.wait_ns)).c_str(),
                view.per())});
  }
  finding.gain = "up to " + time_and_share(cost.transfer_ns, finding.share) + " " + view.per() +
                 predicted(view, Change::kFasterCommunication);
  out.findings.push_back(std::move(finding));
}

}  // namespace vitrine::rules

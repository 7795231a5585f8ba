// Rule: forward work done again in backward, what it costs, and whether the memory needs it.
#include <algorithm>

#include "analysis/rules/job_view.h"
#include "analysis/rules/rules.h"
#include "core/format.h"

namespace vitrine::rules {
namespace {

// With a quarter of the card free, some blocks at least could keep their activations.
constexpr double kFarFromEdge = 0.75;

}  // namespace

void recompute_unneeded(const JobView& view, RuleOutput& out) {
  const RankView* shown = nullptr;
  const auto again = [](const RankView& rank) {
    return usual(
        rank, [](const StepFacts& s) { return s.recompute_ns; }, rank.facts->recompute_ns);
  };
  for (const RankView& rank : view.ranks) {
    if (again(rank) > 0 && (shown == nullptr || again(rank) > again(*shown))) shown = &rank;
  }
  if (shown == nullptr) return;

  double fullest = 0;
  bool known = false;
  for (const RankView& rank : view.ranks) {
    const MemoryFacts& memory = rank.facts->memory;
    if (!memory.known || memory.capacity <= 0) continue;
    known = true;
    fullest = std::max(fullest,
                       static_cast<double>(std::max(memory.peak_reserved, memory.peak_allocated)) /
                           static_cast<double>(memory.capacity));
  }
  const bool needed = known && fullest > kFarFromEdge;
  const int64_t device = again(*shown);
  // Recomputation is counted by launch, so its share is of the compute launched in the step too.
  // The repeated forward takes its part of the step's gaps as of its compute; exposed communication
  // would stay.
  const int64_t launched = usual(
      *shown,
      [](const StepFacts& s) { return s.device.compute_ns; },
      shown->facts->total.compute_ns);
  const int64_t compute = std::max(launched > 0 ? launched : shown->compute_ns, device);
  const double of_compute =
      compute > 0 ? static_cast<double>(device) / static_cast<double>(compute) : 0;
  const int64_t exposed = usual(
      *shown,
      [](const StepFacts& s) { return s.time.exposed_communication_ns; },
      shown->facts->total.exposed_communication_ns);
  const auto cost = std::max(
      device, static_cast<int64_t>(of_compute * static_cast<double>(shown->step_ns - exposed)));

  Finding finding;
  finding.rule = "recompute_unneeded";
  finding.title = needed  ? "Recomputation (the memory needs it)"
                  : known ? "Recomputation without need"
                          : "Recomputation seen";
  set_cost(finding, view, cost);
  finding.confidence = known ? 0.8 : 0.5;  // that it is seen is sure, that it is not needed is not
  if (needed) finding.severity = Severity::kNote;
  finding.summary = format(
      "Forward kernels run again inside backward: %s of compute %s (%s of all "
      "compute), about %s of the step with the launches and gaps that belong to them.",
      format_ns(static_cast<double>(device)).c_str(),
      view.per(),
      percent(of_compute).c_str(),
      format_ns(static_cast<double>(cost)).c_str());
  finding.cause = "Activation checkpointing trades this time for memory; ";
  finding.cause +=
      known ? format("the fullest card is at %s of its capacity.", percent(fullest).c_str())
            : std::string(
                  "whether the memory needs it is not known: neither the peak nor the "
                  "card's capacity was recorded.");
  finding.evidence.push_back(
      {format("rank %d: %s", shown->rank, shown->facts->recompute_evidence.c_str()), shown->rank});
  if (!shown->steps.empty()) {
    const StepFacts& step = *shown->steps.front();
    Evidence& place = finding.evidence.back();
    place.step = step.step;
    place.begin_ns = step.start_ns;
    place.end_ns = step.start_ns + step.duration_ns;
  }
  finding.fix = {
      "recompute fewer blocks (every second, or the cheapest by operation: selective "
      "checkpointing, torch.utils.checkpoint.create_selective_checkpoint_contexts)",
      "none at all where the peak allows: no checkpoint_wrapper or torch.utils.checkpoint; "
      "DeepSpeed and Vitrine without \"activation_checkpointing\"; Megatron-LM "
      "--recompute-granularity selective",
      "torch.cuda.memory._record_memory_history or profile_memory=True shows what the peak is"};
  finding.gain =
      "up to " + time_and_share(cost, finding.share) + " " + view.per() + ", for more memory";
  out.findings.push_back(std::move(finding));
}

}  // namespace vitrine::rules

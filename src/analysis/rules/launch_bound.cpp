// Rule: the host launches too slowly, so that the device runs dry between kernels.
#include <algorithm>

#include "analysis/rules/gain.h"
#include "analysis/rules/rules.h"
#include "analysis/rules/traffic.h"
#include "core/format.h"

namespace vitrine::rules {
namespace {

// Recording a launch costs the host about as much as the launch: up to this share the gaps may be
// the profiler's doing.
constexpr double kWarnShare = 0.10;
// A kernel that runs shorter than a launch takes can't keep ahead of the host.
constexpr int64_t kShortKernelNs = 10000;

int64_t host_late(const RankView& rank) { return rank.idle_for(IdleCause::kHostLaunch); }

// A gap in which a thousand launches would fit is a pause of the host, not a slow launch.
constexpr int64_t kPauseNs = 10000000;

// A median of fewer is one of the two, and the first one warms up.
constexpr size_t kFewestSteps = 3;

// Whether pauses hold most of the idle time; the longest gaps are all that is needed to know.
bool mostly_pauses(const RankView& rank) {
  int64_t pauses = 0;
  for (const Gap& gap : rank.facts->gaps) {
    if (gap.cause == IdleCause::kHostLaunch && gap.duration_ns >= kPauseNs)
      pauses += gap.duration_ns;
  }
  return pauses * 2 > rank.facts->idle_by_cause[static_cast<size_t>(IdleCause::kHostLaunch)];
}

// Whether calls of the driver's allocator (cudaFree, hipMalloc, ...) hold most of it.
bool mostly_allocator(const RankView& rank) {
  int64_t calls = 0;
  for (const auto& [what, ns] : idle_whats(*rank.facts, IdleCause::kHostLaunch)) {
    if (!what.starts_with("cuda") && !what.starts_with("hip") && !what.starts_with("cu")) continue;
    for (const char* word : {"Malloc", "Free", "HostAlloc", "MemAlloc", "MemMap", "MemCreate"}) {
      if (what.find(word) == std::string::npos) continue;
      calls += ns;
      break;
    }
  }
  return calls * 2 > rank.facts->idle_by_cause[static_cast<size_t>(IdleCause::kHostLaunch)];
}

bool small_kernels(const RankView& rank) {
  const LaunchFacts& launch = rank.facts->launch;
  return launch.short_kernels * 2 > launch.kernels || launch.kernel_median_ns < kShortKernelNs;
}

void describe_rank(const RankView& rank, const JobView& view, Finding& finding) {
  const LaunchFacts& launch = rank.facts->launch;
  const auto per_step = rank.steps.empty()
                            ? launch.kernels
                            : usual(
                                  rank, [](const StepFacts& s) { return s.kernels; }, 0);
  finding.evidence.push_back(
      {format("rank %d: idle %s %s for the host; %lld kernels %s, median %s, %.0f %% under 10 us, "
              "%.0f %% found an empty queue",
              rank.rank,
              time_and_share(host_late(rank), view.share(host_late(rank))).c_str(),
              view.per(),
              static_cast<long long>(per_step),
              view.per(),
              format_ns(static_cast<double>(launch.kernel_median_ns)).c_str(),
              100.0 * static_cast<double>(launch.short_kernels) /
                  static_cast<double>(std::max(launch.kernels, launch.short_kernels)),
              launch.starved_share * 100),
       rank.rank});
  if (rank.wait_ns > 0 && view.share(rank.wait_ns) >= 0.02) {
    std::string whom = "other ranks";
    const auto& waits = view.job->waits;
    if (rank.index < waits.size() && !waits[rank.index].waited_for.empty()) {
      whom = format("rank %d", waits[rank.index].waited_for.front().first);
    }
    finding.evidence.push_back(
        {format("rank %d: its long communication kernels are waiting for %s (%s %s), not transfer "
                "(%s)",
                rank.rank,
                whom.c_str(),
                format_ns(static_cast<double>(rank.wait_ns)).c_str(),
                view.per(),
                format_ns(static_cast<double>(rank.transfer_ns)).c_str()),
         rank.rank});
  }
}

}  // namespace

void launch_bound(const JobView& all, RuleOutput& out) {
  JobView view = all;
  const JobFacts& job = *view.job;
  std::erase_if(view.ranks, [](const RankView& rank) { return rank.facts->launch.kernels == 0; });
  if (view.ranks.empty()) {
    if (!job.ranks.empty()) {
      out.abstained.push_back("launch_bound: no launches of device work were recorded");
    }
    return;
  }
  const int64_t cost = common_part(
      view, [](const RankView& rank) { return rank.idle_beside_pipeline(IdleCause::kHostLaunch); });
  if (cost <= 0) return;

  Finding finding;
  finding.rule = "launch_bound";
  finding.title = "Host launches too slowly";
  set_cost(finding, view, cost);
  if (finding.share < kWarnShare) finding.severity = Severity::kNote;
  const auto small =
      static_cast<size_t>(std::count_if(view.ranks.begin(), view.ranks.end(), small_kernels));
  const bool many_small = small * 2 > view.ranks.size();
  finding.confidence = many_small ? 0.9 : 0.7;
  finding.summary = format(
      "The device is idle for %s %s because the host reaches the next launch too "
      "late%s.",
      time_and_share(cost, finding.share).c_str(),
      view.per(),
      view.ranks.size() > 3   ? " (three quarters of the ranks have at least this)"
      : view.ranks.size() > 1 ? " (at least this on every rank)"
                              : "");
  finding.cause =
      many_small    ? "Launch-bound: most kernels run shorter than the host needs to launch "
                      "one, so the device runs dry."
      : view.trains ? "The host is busy in its own code (Python, autograd, optimizer) between "
                      "launches."
                    : "The host is busy in its own code between launches.";
  const bool allocator = mostly_allocator(view.ranks.front());
  if (allocator) {
    finding.title = "Allocator calls stop the device";
    finding.cause =
        "Most of it is in calls of the driver's allocator, which wait for the device: memory is "
        "given back and asked for again in the step.";
    for (const char* way :
         {"let PyTorch's caching allocator keep memory: unset PYTORCH_NO_CUDA_MEMORY_CACHING "
          "(PYTORCH_NO_HIP_MEMORY_CACHING), no torch.cuda.empty_cache() in the loop",
          "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True where the card is nearly full and the "
          "allocator frees to try again",
          "equal shapes from step to step (padding, bucketed lengths), so that blocks fit again"}) {
      finding.fix.push_back(way);
    }
  } else if (mostly_pauses(view.ranks.front())) {
    finding.title = "Host pauses for long";
    finding.cause =
        "Most of it is in single gaps of 10 ms and more, in which the host does something else "
        "than launching: set-up, compilation, input, or another process.";
    finding.fix.push_back(
        "see what the host does in the longest gaps: profile(with_stack=True), py-spy");
  }
  const bool no_operators = std::all_of(view.ranks.begin(), view.ranks.end(), [](auto& rank) {
    return rank.facts->operators.empty();
  });
  if (no_operators) {
    // Launches alone say that the host was late, not what it did.
    finding.severity = Severity::kNote;
    finding.confidence = 0.4;
    finding.cause += " Operators of the host are not recorded: why it was late is not known.";
  }
  if (view.has_steps && view.ranks.front().steps.size() < kFewestSteps) {
    finding.confidence = std::min(finding.confidence, 0.5);
    finding.cause += format(
        " Only %zu step%s recorded: what the first calls of a kernel cost (loading its code) is in "
        "the figure.",
        view.ranks.front().steps.size(),
        view.ranks.front().steps.size() == 1 ? " was" : "s were");
  }
  if (!view.has_steps) {
    // Start-up and pauses between measurements lie in the window as well.
    finding.confidence = std::min(finding.confidence, 0.5);
    finding.cause += " No steps are marked, so start-up and pauses are in the figure too.";
  }
  // Each alone is small talk beside the other; together they are what such a job looks like.
  const TrafficCost sync = cost_of(view, Traffic::kGradients);
  if (view.share(sync.transfer_ns) >= 0.02 && sync.hidden_share < 0.1) {
    finding.cause += format(
        " Beside it the gradient synchronisation is exposed: overlap %s, %s %s of transfer (see "
        "exposed_gradient_sync).",
        percent(sync.hidden_share).c_str(),
        format_ns(static_cast<double>(sync.transfer_ns)).c_str(),
        view.per());
  }
  const size_t shown = std::min<size_t>(view.ranks.size(), 4);
  for (size_t i = 0; i < shown; ++i) describe_rank(view.ranks[i], view, finding);
  std::vector<std::pair<std::string, int64_t>> whats =
      idle_whats(*view.ranks.front().facts, IdleCause::kHostLaunch);
  if (!whats.empty()) {
    whats.resize(std::min<size_t>(whats.size(), 3));
    std::vector<std::string> parts;
    for (const auto& [what, ns] : whats) {
      parts.push_back(what + " " + format_ns(static_cast<double>(ns)));
    }
    finding.evidence.push_back({format("rank %d: in those gaps the host was in %s (over the trace)",
                                       view.ranks.front().rank,
                                       join(parts, ", ").c_str()),
                                view.ranks.front().rank});
  }
  add_gaps(view, IdleCause::kHostLaunch, 1, finding.evidence);
  std::vector<const char*> faster_host = {
      "PyTorch: torch.compile(model, mode=\"reduce-overhead\") or CUDA graphs "
      "(torch.cuda.make_graphed_callables): one launch replays many kernels",
      "a larger batch or longer sequences for each device: the same launches, more work in each",
      view.trains ? "torch.optim.AdamW(..., fused=True), fused normalisation and attention "
                    "(scaled_dot_product_attention): fewer and longer kernels"
                  : "fused normalisation and attention (scaled_dot_product_attention): fewer and "
                    "longer kernels",
      "keep Python off the path: no hooks, prints or per-parameter loops in the step"};
  if (!allocator) finding.fix.insert(finding.fix.end(), faster_host.begin(), faster_host.end());
  finding.gain = "up to " + time_and_share(cost, finding.share) + " " + view.per() +
                 predicted(all, Change::kFasterHost) +
                 "; the profiler's own cost per launch is in this figure";
  out.findings.push_back(std::move(finding));
}

}  // namespace vitrine::rules

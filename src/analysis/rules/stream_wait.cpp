// Rule: work that was launched in time is held back by another stream or an event, or begins some
// microseconds after the kernel before it, again and again.
#include <algorithm>

#include "analysis/rules/idle_finding.h"
#include "analysis/rules/rules.h"

namespace vitrine::rules {

namespace {

// Idle time of launched work, parted at what any device needs from one kernel to the next.
struct Held {
  int64_t back = 0, between = 0;
};
Held held(const RankView& rank) {
  int64_t back = 0, between = 0;
  for (const auto& [what, ns] : idle_whats(*rank.facts, IdleCause::kStreamWait)) {
    (what == "between kernels" ? between : back) += ns;
  }
  const int64_t all = rank.idle_for(IdleCause::kStreamWait);
  if (between <= 0) return {all, 0};
  // What bears no name of its own isn't listed among the whats.
  const int64_t window = rank.facts->idle_by_cause[static_cast<size_t>(IdleCause::kStreamWait)];
  const double part = static_cast<double>(between) /
                      static_cast<double>(std::max<int64_t>({window, back + between, 1}));
  const auto of_step = static_cast<int64_t>(part * static_cast<double>(all));
  return {all - of_step, of_step};
}

// Under this share of the step the hand-over from kernel to kernel is what every job has.
constexpr double kBetweenShare = 0.02;

}  // namespace

void stream_wait(const JobView& view, RuleOutput& out) {
  const int64_t back = common_part(view, [](const RankView& rank) { return held(rank).back; });
  if (back > 0) {
    Finding finding = idle_finding(
        view,
        back,
        {"stream_wait",
         IdleCause::kStreamWait,
         "Launched work held back",
         "For %s the device is idle although the next kernel had been launched: it waits for "
         "another stream or an event.",
         "Dependencies between streams: the kernel waits for work or an event elsewhere, or for "
         "device work that was not recorded."});
    finding.fix = {
        "fewer stream.wait_stream() and event waits, or the waited work launched earlier",
        "work of one chain on one stream; communication launched as soon as its input is there"};
    finding.gain = "part of " + time_and_share(back, finding.share) + " " + view.per();
    out.findings.push_back(std::move(finding));
  }
  const int64_t between =
      common_part(view, [](const RankView& rank) { return held(rank).between; });
  if (between <= 0 || view.share(between) < kBetweenShare) return;
  Finding finding = idle_finding(
      view,
      between,
      {"stream_wait",
       IdleCause::kStreamWait,
       "Short gaps between kernels",
       "The device is idle for %s in gaps of at most 10 us between kernels that had been launched "
       "in time.",
       "Each kernel begins a little after the one before has ended; many short kernels make many "
       "such gaps.",
       0.9,
       0});
  finding.severity = Severity::kNote;
  finding.fix = {"fewer and longer kernels: torch.compile, fused operators, a larger batch",
                 "CUDA graphs shorten the gaps"};
  out.findings.push_back(std::move(finding));
}

}  // namespace vitrine::rules

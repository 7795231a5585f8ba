// Rule: copies between host and device that nothing hides.
#include <algorithm>

#include "analysis/rules/job_view.h"
#include "analysis/rules/rules.h"
#include "core/format.h"

namespace vitrine::rules {

void exposed_copies(const JobView& view, RuleOutput& out) {
  const int64_t cost = common_part(view, [](const RankView& rank) { return rank.exposed_copy_ns; });
  if (cost <= 0) return;

  Finding finding;
  finding.rule = "exposed_copies";
  finding.title = "Copies not hidden";
  finding.confidence = 0.8;
  set_cost(finding, view, cost);
  finding.summary = format("Copies and sets hold the device for %s %s with no compute beside them.",
                           time_and_share(cost, finding.share).c_str(),
                           view.per());
  bool pageable = false;
  for (const KernelRow& row : view.ranks.front().facts->kernels) {
    if (!row.copy) continue;
    pageable = pageable || row.name.find("Pageable") != std::string::npos;
    if (finding.evidence.size() < 3) {
      finding.evidence.push_back({format("rank %d: %s, %lld times, %s in all",
                                         view.ranks.front().rank,
                                         row.name.c_str(),
                                         static_cast<long long>(row.count),
                                         format_ns(static_cast<double>(row.total_ns)).c_str()),
                                  view.ranks.front().rank});
    }
  }
  finding.cause = pageable
                      ? "Copies from pageable host memory go through a staging buffer and can't "
                        "overlap with kernels."
                      : "Copies run on the compute stream, or kernels wait for them.";
  finding.fix = {
      "PyTorch: DataLoader(pin_memory=True) and .to(device, non_blocking=True)",
      "copy the next batch on a stream of its own while this one runs",
      "many small copies: gather them on the host and copy once; create constants on the "
      "device (torch.tensor(..., device=...))"};
  finding.gain = "up to " + time_and_share(cost, finding.share) + " " + view.per();
  out.findings.push_back(std::move(finding));
}

}  // namespace vitrine::rules

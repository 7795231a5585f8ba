// Rule: a few kernels hold most of the compute. Says where to look; nothing wrong by itself.
#include <algorithm>

#include "analysis/rules/job_view.h"
#include "analysis/rules/rules.h"
#include "core/format.h"

namespace vitrine::rules {
namespace {

// With half of the compute in three kernels, work on any other can't gain much.
constexpr size_t kFew = 3;
constexpr double kMost = 0.5;
// Products and attention are what a training step is for; other kernels at the top are suspects.
bool is_expected(KernelClass kind) {
  return kind == KernelClass::kMatmul || kind == KernelClass::kAttention ||
         kind == KernelClass::kConvolution;
}

}  // namespace

void dominant_kernels(const JobView& view, RuleOutput& out) {
  if (view.ranks.empty()) return;
  const RankView& rank = view.ranks.front();
  int64_t all = 0, few = 0;
  std::vector<const KernelRow*> top;
  for (const KernelRow& row : rank.facts->kernels) {
    if (row.communication || row.copy) continue;
    all += row.total_ns;
    if (top.size() < kFew) {
      top.push_back(&row);
      few += row.total_ns;
    }
  }
  if (all <= 0) return;
  const double held = static_cast<double>(few) / static_cast<double>(all);
  if (held < kMost) return;

  const auto cost = static_cast<int64_t>(held * static_cast<double>(rank.compute_ns));
  if (view.share(cost) < 0.2) return;  // compute is not what bounds this step

  Finding finding;
  finding.rule = "dominant_kernels";
  finding.severity = Severity::kNote;
  finding.title = "Few kernels hold most of the compute";
  finding.confidence = 1;
  finding.ranks = {rank.rank};
  finding.summary = format("%zu kernel%s hold %s of the compute of rank %d.",
                           top.size(),
                           top.size() == 1 ? "" : "s",
                           percent(held).c_str(),
                           rank.rank);
  bool unexpected = false;
  for (const KernelRow* row : top) {
    unexpected = unexpected || !is_expected(row->kind);
    finding.evidence.push_back(
        {format("%s (%s): %lld times, %s, %s of the compute%s",
                short_kernel_name(row->name).c_str(),
                kernel_class_name(row->kind),
                static_cast<long long>(row->count),
                format_ns(static_cast<double>(row->total_ns)).c_str(),
                percent(static_cast<double>(row->total_ns) / static_cast<double>(all)).c_str(),
                row->tensor_core ? ", tensor cores" : ""),
         rank.rank});
  }
  finding.cause = unexpected ? "Not all of them are products or attention: memory-bound work that "
                               "fusion could shorten."
                             : "They are the products and attention that the step is made for.";
  if (unexpected) {
    finding.fix = {"torch.compile(model) fuses chains of element-wise kernels and normalisation",
                   "fused versions: scaled_dot_product_attention, AdamW(fused=True), fused "
                   "cross-entropy"};
  } else {
    finding.fix = {
        "lower precision (bf16, float8 by torchao) or other shapes (multiples of 64) are "
        "what could shorten them"};
  }
  out.findings.push_back(std::move(finding));
}

}  // namespace vitrine::rules

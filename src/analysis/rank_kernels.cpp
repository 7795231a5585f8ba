// Kernels by name, class and phase; recomputation; copies between host and device.
#include <algorithm>
#include <array>

#include "analysis/kernel_classes.h"
#include "analysis/rank_parts.h"

namespace vitrine {
namespace {

struct Tally {
  KernelRow row;
  bool matmul_like = false;
};

bool matmul_like(KernelClass kind) {
  return kind == KernelClass::kMatmul || kind == KernelClass::kAttention ||
         kind == KernelClass::kConvolution;
}

Tally start_row(const RankParts& view, const DeviceSpan& span) {
  Tally out;
  out.row.name = view.name(span);
  out.row.communication = span.use == DeviceUse::kCommunication;
  out.row.copy = span.use == DeviceUse::kCopy;
  if (span.use == DeviceUse::kCompute) {
    const KernelTraits traits = kernel_traits(out.row.name);
    out.row.kind = traits.kind, out.row.tensor_core = traits.tensor_core;
    out.matmul_like = matmul_like(traits.kind);
  }
  out.row.min_ns = INT64_MAX;
  return out;
}

void count_copy(const RankParts& view, const DeviceSpan& span, RankFacts& out) {
  const std::string& name = view.name(span);
  const int64_t bytes = view.timeline.spans.bytes[span.span];
  if (name.find("DtoH") != std::string::npos || name.find("DeviceToHost") != std::string::npos) {
    out.copy_bytes_to_host_device[0] += bytes;
  } else if (name.find("HtoD") != std::string::npos ||
             name.find("HostToDevice") != std::string::npos) {
    out.copy_bytes_to_host_device[1] += bytes;
  }
}

}  // namespace

void measure_kernels(const RankParts& view, RankFacts& out) {
  std::vector<int32_t> row_of_name(view.timeline.strings.size(), -1);
  std::vector<Tally> rows;
  std::array<RunningUnion, kPhases> phases;
  RunningUnion recompute;
  int64_t known_ns = 0;
  for (const DeviceSpan& span : view.device) {
    const int64_t duration = span.end - span.begin;
    int32_t& place = row_of_name[view.timeline.spans.name[span.span]];
    if (place < 0) {
      place = static_cast<int32_t>(rows.size());
      rows.push_back(start_row(view, span));
    }
    Tally& tally = rows[static_cast<size_t>(place)];
    KernelRow& row = tally.row;
    ++row.count;
    row.total_ns += duration;
    row.min_ns = std::min(row.min_ns, duration), row.max_ns = std::max(row.max_ns, duration);
    if (span.use == DeviceUse::kCopy) count_copy(view, span, out);
    if (span.use != DeviceUse::kCompute) continue;
    phases[static_cast<size_t>(span.phase)].add(span.begin, span.end);
    out.class_ns[static_cast<size_t>(row.kind)] += duration;
    if (span.recompute) recompute.add(span.begin, span.end);
    if (!tally.matmul_like) continue;
    out.matmul_ns += duration;
    if (row.tensor_core) out.tensor_core_ns += duration;
    const Launch* launch = view.launch(span);
    if (launch != nullptr && launch->known_flops) known_ns += duration;
  }
  for (size_t phase = 0; phase < kPhases; ++phase) out.phase_ns[phase] = phases[phase].length();
  out.recompute_ns = recompute.length();
  if (out.matmul_ns > 0) {
    out.flops_covered = static_cast<double>(known_ns) / static_cast<double>(out.matmul_ns);
  }
  for (Tally& tally : rows) out.kernels.push_back(std::move(tally.row));
  std::stable_sort(out.kernels.begin(),
                   out.kernels.end(),
                   [](const KernelRow& a, const KernelRow& b) { return a.total_ns > b.total_ns; });
}

}  // namespace vitrine

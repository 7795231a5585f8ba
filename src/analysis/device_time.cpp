// Kinds to sets, and the split of a window: compute before communication before copies.
#include "analysis/device_time.h"

#include <algorithm>

namespace vitrine {

DeviceUse device_use(SpanKind kind) {
  switch (kind) {
    case SpanKind::kForward:
    case SpanKind::kRecompute:
    case SpanKind::kBackward:
    case SpanKind::kOptimizer:
    case SpanKind::kOperation:
    case SpanKind::kKernel:
      return DeviceUse::kCompute;
    case SpanKind::kCopy:
    case SpanKind::kDisk:
      return DeviceUse::kCopy;
    default:
      return is_communication(kind) ? DeviceUse::kCommunication : DeviceUse::kNone;
  }
}

void DeviceSets::append(DeviceUse use, Interval interval) {
  if (use == DeviceUse::kCompute) compute.append(interval);
  if (use == DeviceUse::kCommunication) communication.append(interval);
  if (use == DeviceUse::kCopy) copy.append(interval);
}

Breakdown breakdown_within(const DeviceSets& sets, Interval window) {
  // One sweep over the three sets' boundaries.
  constexpr int kSets = 3;
  const std::vector<Interval>* const all[kSets] = {
      &sets.compute.intervals(), &sets.communication.intervals(), &sets.copy.intervals()};
  size_t at[kSets];
  for (int i = 0; i < kSets; ++i) {
    const auto first = std::partition_point(
        all[i]->begin(), all[i]->end(), [&](const Interval& x) { return x.end <= window.begin; });
    at[i] = static_cast<size_t>(first - all[i]->begin());
  }
  Breakdown out;
  out.span_ns = window.end - window.begin;
  for (int64_t now = window.begin; now < window.end;) {
    bool inside[kSets];
    int64_t next = window.end;
    for (int i = 0; i < kSets; ++i) {
      while (at[i] < all[i]->size() && (*all[i])[at[i]].end <= now) ++at[i];
      inside[i] = at[i] < all[i]->size() && (*all[i])[at[i]].begin <= now;
      if (at[i] == all[i]->size()) continue;
      next = std::min(next, inside[i] ? (*all[i])[at[i]].end : (*all[i])[at[i]].begin);
    }
    const int64_t length = next - now;
    now = next;
    const auto [compute, communication, copy] = inside;
    if (compute) out.compute_ns += length;
    if (communication) out.communication_ns += length;
    if (compute && communication) out.overlap_ns += length;
    if (communication && !compute) out.exposed_communication_ns += length;
    if (copy && !compute && !communication) out.exposed_copy_ns += length;
    if (!compute && !communication && !copy) out.idle_ns += length;
  }
  return out;
}

}  // namespace vitrine

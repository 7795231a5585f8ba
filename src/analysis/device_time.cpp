// Kinds to sets, and the split of a window: compute before communication before copies.
#include "analysis/device_time.h"

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

IntervalSet DeviceSets::busy() const { return unite(unite(compute, communication), copy); }

Breakdown breakdown_within(const DeviceSets& sets, Interval window) {
  const IntervalSet compute = sets.compute.clip(window);
  const IntervalSet communication = sets.communication.clip(window);
  const IntervalSet copy = sets.copy.clip(window);
  Breakdown out;
  out.span_ns = window.end - window.begin;
  out.compute_ns = compute.length();
  out.communication_ns = communication.length();
  out.overlap_ns = intersect(compute, communication).length();
  out.exposed_communication_ns = out.communication_ns - out.overlap_ns;
  const IntervalSet work = unite(compute, communication);
  out.exposed_copy_ns = subtract(copy, work).length();
  out.idle_ns = out.span_ns - work.length() - out.exposed_copy_ns;
  return out;
}

}  // namespace vitrine

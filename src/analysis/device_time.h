// What a device does, as three sets of intervals, and how a window of time divides among them.
#pragma once

#include "analysis/breakdown.h"
#include "analysis/intervals.h"
#include "timeline/timeline.h"

namespace vitrine {

enum class DeviceUse : uint8_t { kCompute, kCommunication, kCopy, kNone };

// What a span of this kind is, on a device lane; kNone: no work of the device (waits, regions).
DeviceUse device_use(SpanKind kind);

struct DeviceSets {
  IntervalSet compute, communication, copy;

  // Intervals in order of begin.
  void append(DeviceUse use, Interval interval);
};

Breakdown breakdown_within(const DeviceSets& sets, Interval window);

}  // namespace vitrine

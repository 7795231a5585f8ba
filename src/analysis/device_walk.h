// The device's work in order of begin, each span with its launch, phase and use.
#pragma once

#include <vector>

#include "analysis/device_time.h"
#include "analysis/host_walk.h"

namespace vitrine {

struct DeviceSpan {
  int64_t begin, end;
  uint32_t span;
  int32_t launch = -1;  // index into HostWalk::launches
  DeviceUse use;
  Phase phase = Phase::kOther;
  bool recompute = false;
};

// Joins device work with its launches by correlation, marks launches with what they launched, and
// copy calls that returned only after their copy as waits.
std::vector<DeviceSpan> walk_device(const RankTimeline& timeline,
                                    const SpanOrder& order,
                                    HostWalk& host);

}  // namespace vitrine

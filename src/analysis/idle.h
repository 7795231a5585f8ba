// Why the device did nothing: each nanosecond in which it was idle has one cause.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "analysis/device_walk.h"

namespace vitrine {

struct IdlePiece {
  int64_t begin, end;
  uint32_t what;  // a StringId, or one of kWhat...
  IdleCause cause;
  bool opens_gap;  // the first piece of one
};

constexpr uint32_t kWhatLatency = UINT32_MAX;      // a launch on its way to the device
constexpr uint32_t kWhatBetween = UINT32_MAX - 1;  // a kernel after another, launched in time
std::string what_text(const RankTimeline& timeline, uint32_t what);

// Disjoint, by begin; together exactly the parts of `range` in which no device lane worked.
//
// A gap ends with a span whose launch is known or not. Up to the launch's begin the host was the
// cause: what its thread was doing then, or else the main thread. Where a gap begins while the host
// waits for the device, host code after that wait counts as the wait's too, for as long as the wait
// had lasted: without it the host would have been that far ahead. The call counts as launching, and
// 10 us after it as latency; what exceeds them is waiting for another stream or event.
std::vector<IdlePiece> idle_pieces(const HostWalk& host,
                                   const std::vector<DeviceSpan>& device,
                                   Interval range);

// Sums over the part of the pieces inside `window`.
IdleByCause idle_by_cause(const std::vector<IdlePiece>& pieces, Interval window);
// The `most` largest by what; with the cause's name in front when `with_cause`.
std::map<std::string, int64_t> idle_by_what(const RankTimeline& timeline,
                                            const std::vector<IdlePiece>& pieces,
                                            Interval window,
                                            bool with_cause,
                                            size_t most);
// The longest 100, longest first.
std::vector<Gap> longest_gaps(const RankTimeline& timeline,
                              const HostWalk& host,
                              const std::vector<DeviceSpan>& device,
                              const std::vector<IdlePiece>& pieces,
                              Interval window);

}  // namespace vitrine

// What a window of a rank's recording holds, as the dependency graph takes it: device work, the
// host's points in order, and usual delays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "analysis/rank_parts.h"

namespace vitrine {

// A device begins its next kernel within this; more has a cause.
constexpr int64_t kHandOverNs = 10'000;
// The clocks of host and device agree to about this.
constexpr int64_t kClockNs = 20'000;

// In the order that points of one time are taken in.
enum class PointKind : uint8_t { kWaitEnd, kDataEnd, kStreamWait, kDataBegin, kWaitBegin, kLaunch };
struct HostPoint {
  int64_t at;
  PointKind kind;
  int32_t index;  // launch, state or stream wait
};

struct GraphWindow {
  Interval host;                  // the window, on the host's clock
  std::vector<uint32_t> device;   // into RankParts::device: launched in it, or still running
  bool launches_known = false;    // of most of that
  int64_t first_launched_ns = 0;  // device work without a launch before this is from before
  int64_t latency_ns = 0;         // from a launch to an idle stream, median
  int64_t hand_over_ns = 0;       // from kernel to kernel of those launched well before, median
  std::vector<HostPoint> points;  // by time
  std::vector<Interval> data;     // the host was loading data
  // Rows of synchronisation on the device: which stream waits, or is waited for, by call.
  std::unordered_map<int64_t, int32_t> stream_of_call;
  // Launches [first_launch, first_launch + launches) of HostWalk begin in the window.
  ptrdiff_t first_launch = 0;
  size_t launches = 0;
  bool stream_waits_seen = false;
};

GraphWindow read_window(const RankParts& parts, Interval host);

}  // namespace vitrine

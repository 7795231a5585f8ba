// One pass over the host's spans: who launched what in which context, what each thread was doing,
// how long operators took.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/host_words.h"
#include "analysis/intervals.h"
#include "analysis/operators.h"
#include "analysis/span_order.h"

namespace vitrine {

struct Launch {
  int64_t begin = 0, end = 0;
  int64_t correlation = 0;
  StringId name = kNoString, operation = kNoString;  // innermost operator around it
  int32_t lane = -1, operator_row = -1;
  int32_t copy_state = -1;  // index into HostWalk::states: a long copy call, which may have waited
  uint32_t device_spans = 0;  // launched by it; filled when device work is joined
  Phase phase = Phase::kOther;
  bool graph = false;
  bool known_flops = false;  // inside an operator whose floating-point operations are known
  bool recompute = false;    // forward work inside backward
};

enum class Doing : uint8_t { kSync, kData, kRegion, kAllocator };

// One instance of something that a host thread was doing, other than running code.
struct HostState {
  Doing doing;
  StringId what;
  int64_t begin = 0, duration_ns = 0;
  StringId call = kNoString;  // of a wait
  int64_t correlation = 0;    // likewise; 0 = none
  // False: no cause of idleness after all, a copy call that did not wait or a region that launches.
  bool counts = true;
};

// Disjoint, by begin, of one lane; between them the thread ran other code, or nothing.
struct HostSegment {
  int64_t begin, end;
  int32_t state;
};

// A call that makes a stream wait for an event.
struct StreamWait {
  int64_t begin = 0, correlation = 0;
  int32_t lane = -1;  // the calling thread's
};

struct HostOfStep {
  int64_t data_ns = 0, sync_ns = 0, allocator_ns = 0, allocator_calls = 0;
};

struct HostWalk {
  std::vector<Launch> launches;          // by begin
  std::vector<StreamWait> stream_waits;  // by begin
  std::vector<HostState> states;
  std::vector<std::vector<HostSegment>> segments;  // by lane
  std::vector<HostOfStep> steps;                   // by StepIndex
  IntervalSet profiler;                            // of all lanes
  IntervalSet operators;  // top-level ones of any lane; only where no device worked
  OperatorTable operator_table;
  int32_t main_lane = -1;  // the thread of the training loop
  bool backward_seen = false, forward_region_seen = false, optimizer_seen = false;
  std::vector<StringId> recomputed;  // names of forward operators seen inside backward
};

HostWalk walk_host(const RankTimeline& timeline, const SpanOrder& order, const StepIndex& steps);

}  // namespace vitrine

// The parts of measure_rank, each a few fields of RankFacts from the walks over a timeline.
#pragma once

#include <vector>

#include "analysis/device_walk.h"
#include "analysis/idle.h"

namespace vitrine {

// What every part reads.
struct RankParts {
  const RankTimeline& timeline;
  const StepIndex& steps;
  const HostWalk& host;
  const std::vector<DeviceSpan>& device;
  const DeviceSets& sets;
  const std::vector<IdlePiece>& idle;

  bool is_kernel(const DeviceSpan& span) const { return span.use != DeviceUse::kCopy; }
  const std::string& name(const DeviceSpan& span) const {
    return timeline.strings[timeline.spans.name[span.span]];
  }
  const Launch* launch(const DeviceSpan& span) const {
    return span.launch < 0 ? nullptr : &host.launches[static_cast<size_t>(span.launch)];
  }
  size_t lane(const DeviceSpan& span) const {
    return static_cast<size_t>(timeline.spans.lane[span.span]);
  }
  // Of the device span at an index.
  const Launch* launch_at(uint32_t index) const { return launch(device[index]); }
  size_t lane_at(uint32_t index) const { return lane(device[index]); }
};

// Length of a union of intervals that come in order of begin.
class RunningUnion {
 public:
  void add(int64_t begin, int64_t end) {
    if (end <= until_) return;
    length_ += end - (begin > until_ ? begin : until_);
    until_ = end;
  }
  int64_t length() const { return length_; }

 private:
  int64_t until_ = INT64_MIN, length_ = 0;
};

void measure_kernels(const RankParts& view, RankFacts& out);      // kernels, classes, phases
void measure_launches(const RankParts& view, RankFacts& out);     // launch
void measure_collectives(const RankParts& view, RankFacts& out);  // groups, collectives
void measure_steps(const RankParts& view, RankFacts& out);        // steps
void outline_work(const RankParts& view, RankFacts& out);         // work

}  // namespace vitrine

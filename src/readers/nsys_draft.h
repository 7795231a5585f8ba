// A timeline of one (process, device) while the rows of an Nsight export come in.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "timeline/timeline.h"

namespace vitrine {

struct NsysEvent {
  int64_t start_ns = 0, end_ns = 0;
  StringId name = kNoString;
  StringId shapes = kNoString;
  SpanKind kind = SpanKind::kHost;
  int32_t lane = -1;
  int64_t correlation = 0, bytes = 0;
  bool range = false;         // of NVTX
  int64_t message_bytes = 0;  // of an NCCL range
};

class NsysDraft {
 public:
  RankTimeline timeline;
  int64_t process = 0;  // 24 bits of pid
  int64_t device = -1;  // -1 = none
  std::vector<NsysEvent> events;

  // Numbers of lanes, made on first use.
  int32_t stream_lane(int64_t stream);
  int32_t thread_lane(int64_t thread, const std::string& name);

  // Chooses the steps, gives events their steps and kernels their collectives, sorts and fills the
  // timeline.
  void finish();

 private:
  struct Step {
    int64_t start_ns, end_ns;
    int32_t number;
  };
  void choose_steps();
  int32_t step_at(int64_t time_ns) const;
  void find_launches();
  void name_collectives();
  void fill();

  std::map<int64_t, int32_t> streams_, threads_;
  std::vector<Step> steps_;  // in order, not overlapping
  struct Launch {
    int64_t start_ns;
    int32_t lane;
  };
  std::unordered_map<int64_t, Launch> launches_;  // by correlation
  std::vector<int32_t> collective_of_;            // by event
  std::vector<int32_t> step_number_;              // of step ranges, by event; -1 = none
};

}  // namespace vitrine

// What can be said about a trace only when all of its events are known.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "timeline/timeline.h"

namespace vitrine {

// Gathered while events are read.
struct KinetoDraft {
  RankTimeline timeline;
  bool own = false;  // written by Vitrine
  struct LaneKey {
    std::string pid, tid;  // as they stand in the file, without quotes
  };
  std::vector<LaneKey> lane_keys;  // of timeline.lanes
  std::map<std::pair<std::string, std::string>, std::string> thread_names;
  std::map<std::string, std::vector<int32_t>> group_ranks;  // from distributedInfo
  struct Call {
    int32_t lane;
    int64_t start_ns;
  };
  std::unordered_map<int64_t, Call> launches;  // runtime calls by correlation
  // record_param_comms of a host thread: the collective of the kernels that are launched inside it.
  struct Announcement {
    int32_t lane;
    int64_t start_ns, end_ns;
    int32_t collective;
  };
  std::vector<Announcement> announcements;
  bool world_size_known = false;
};

// Names lanes, gives spans their steps, kernels their collectives, groups their ranks, collectives
// their numbers, and sorts.
RankTimeline finish_kineto(KinetoDraft draft);

}  // namespace vitrine

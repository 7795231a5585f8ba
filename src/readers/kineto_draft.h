// A trace in the making: what is gathered while its pieces are joined.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "readers/amounts.h"
#include "readers/kineto_events.h"
#include "timeline/timeline.h"

namespace vitrine {

// Longer lists of ranks are kept with the group, not once a collective.
constexpr size_t kMostRanksACollective = 4096;

struct KinetoDraft {
  RankTimeline timeline;
  KinetoDamage damage;
  Amounts amounts;
  bool own = false;  // written by Vitrine
  bool hip = false;  // recorded on AMD's cards
  bool rank_known = false, world_size_known = false;
  int32_t rank_in_name = -1, rank_in_collectives = -1;
  struct LaneKey {
    std::string pid, tid;  // as they stand in the file, without quotes
  };
  std::vector<LaneKey> lane_keys;  // of timeline.lanes
  std::map<std::pair<std::string, std::string>, std::string> thread_names;
  // By pid: "CPU", "GPU 0"; "python".
  std::map<std::string, std::string> process_labels, process_names;
  // record_param_comms of a host thread: the collective of the kernels that are launched inside it.
  struct Announcement {
    int32_t lane;
    int64_t start_ns, end_ns;
    int32_t collective;
  };
  std::vector<Announcement> announcements;
  // What our own writer says of spans.
  struct Own {
    uint32_t span;
    StringId kind, label, block;
    int32_t step, micro_batch;
  };
  std::vector<Own> own_spans;
  struct Series {
    int64_t time_ns;
    StringId pid, name, series;
    double value;
  };
  std::vector<Series> counters;
  std::vector<StringId> allocation_pids;  // of timeline.allocations
  // In collectives of one process; timeline.groups has those of pg_config.
  struct SeenGroup {
    std::string pid;
    ProcessGroup group;
  };
  std::vector<SeenGroup> groups_seen;

  // What tells the ranks of a merged file apart: which rank the collectives of a process say that
  // they are of, and how often; the ranks' own distributedInfo; what our own `trace merge` notes.
  std::map<std::string, std::map<int32_t, int64_t>> rank_votes;
  std::vector<std::string> rank_headers;
  struct MergedRank {
    int32_t rank;
    int64_t offset_ns = 0;                                    // was added to its times
    std::map<std::string, std::string> pids;                  // of this file -> of the rank's own
    std::vector<std::pair<std::string, std::string>> header;  // keys and values of the rank's own
  };
  std::vector<MergedRank> merged;
};

}  // namespace vitrine

// What is measured over all ranks of a job: collectives matched, clocks, layout, pipeline,
// stragglers, outlier steps.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "analysis/rank_facts.h"
#include "timeline/interconnect.h"

namespace vitrine {

// One collective as all ranks of its group saw it. Times of the members are on the job's common
// clock.
struct MatchedCollective {
  // "send" is a send with its receive, `ranks` its source and destination; "send_receive" one
  // kernel a side that does both.
  std::string name, group;     // group: name in the traces
  std::vector<int32_t> ranks;  // of the group; empty when not known
  int64_t sequence = -1;
  int32_t step = -1;
  int64_t bytes = 0;  // as CollectiveUse
  struct Member {
    int32_t rank_index = -1;  // into JobFacts::ranks
    int32_t use = -1;         // into RankFacts::collectives
    int64_t start_ns = 0, end_ns = 0;
    int64_t wait_ns = 0;          // until the latest member arrived
    int64_t exposed_wait_ns = 0;  // of that, not hidden behind this rank's compute
  };
  std::vector<Member> members;  // in order of arrival
  bool whole = false;           // every rank of the group was seen
  int64_t transfer_ns = 0;      // from the latest arrival to the end (the least over members)
  int64_t arrival_skew_ns = 0, end_skew_ns = 0;
  double algorithm_bytes_per_s = 0, bus_bytes_per_s = 0;  // 0 = not known
};

// All matched collectives of one kind.
struct CollectiveKind {
  std::string name, group;
  std::vector<int32_t> ranks;
  int64_t count = 0, unmatched = 0, bytes = 0;  // bytes of the largest message
  int64_t total_ns = 0, exposed_ns = 0, wait_ns = 0, transfer_ns = 0;  // summed over members
  double bus_bytes_per_s = 0;       // median of the larger messages (over 1 MiB); 0 = not known
  double expected_bytes_per_s = 0;  // what the best link of these cards reaches; 0 = not known
  std::string expected_from;        // "NVLink of NVIDIA H200", ...
  // How often each rank arrived last (rank, times), most often first.
  std::vector<std::pair<int32_t, int64_t>> last_arrivals;
};

struct RankClock {
  int64_t offset_ns = 0;        // added to the rank's times it gives the job's clock (rank 0's)
  int64_t uncertainty_ns = -1;  // half the spread of what the collectives say; -1 = not estimated
  int64_t samples = 0;
  std::string method;  // "collectives end together", "wall clock of the host", "none"
};

struct RankWaits {
  int64_t exposed_wait_ns = 0;  // in collectives, for other ranks
  int64_t exposed_transfer_ns =
      0;                   // in collectives, moving data; the rest of exposed communication
  int64_t unknown_ns = 0;  // in collectives that could not be matched
  std::vector<std::pair<int32_t, int64_t>> waited_for;  // (rank, ns), most first
};

struct LayoutFacts {
  int32_t world_size = 1;
  int32_t data = 1, tensor = 1, pipeline = 1, expert = 1, context = 1;
  bool data_sharded =
      false;  // parameters or gradients are sharded over the data ranks (FSDP, ZeRO)
  bool sharded_alone = false;  // gathers and reduce-scatters in a data group of size 1
  bool known = false;
  std::string confidence;  // "certain", "likely", "guess"
  std::vector<std::string> reasons;
  struct Group {
    std::string role;  // "data", "tensor", "pipeline", "expert", "world", "unknown"
    std::string name, description;
    std::vector<int32_t> ranks;
    int64_t uses = 0, total_ns = 0, bytes = 0;  // over the ranks that were read
  };
  std::vector<Group> groups;
};

struct PipelineStage {
  int32_t stage = 0;
  std::vector<int32_t> ranks;
  // Of the step of median length. Compute, bubble, host, transfer and the rest add up to it.
  int64_t step_ns = 0, compute_ns = 0;
  int64_t bubble_ns = 0;      // in receive, or idle, for another stage: by schedule and by waiting
  int64_t schedule_ns = 0;    // of that, what the schedule's ideal has
  int64_t waiting_ns = 0;     // the rest: a stage that was late
  int64_t host_bound_ns = 0;  // idle because this stage's own host launched too slowly
  int64_t transfer_ns = 0;    // moving activations and gradients, exposed
  int64_t other_ns = 0;       // exposed copies and collectives of the stage's own ranks
  int64_t forward_ns = 0, backward_ns = 0;  // of one micro-batch
};

struct PipelineFacts {
  int32_t stages = 0, micro_batches = 0;
  std::string order;           // "gpipe", "1f1b", "interleaved", "unknown"
  double ideal_bubble = 0;     // (p-1)/(v m+p-1), v chunks a stage
  double measured_bubble = 0;  // mean over stages of bubble / step
  std::vector<PipelineStage> by_stage;
  struct Cell {  // of the pipeline chart
    int32_t stage = 0, rank = 0, micro_batch = -1, step = -1;
    bool forward = true;
    int64_t begin_ns = 0, end_ns = 0;  // the job's clock
  };
  std::vector<Cell> cells;
  std::vector<std::string> notes;
};

// A rank that arrives last in the collectives of many steps, beyond what chance would do.
struct Straggler {
  int32_t rank = -1;
  int64_t steps = 0, of_steps = 0;  // in how many of the steps it was the one waited for
  int64_t cost_ns = 0;              // a step, what the others waited for it (median)
  double p_value = 1;               // of being last so often by chance
  std::string reason;    // "compute", "host", "input", "copy", "allocator", "profiler", "unknown"
  std::string evidence;  // numbers: its own against the others' median
  std::vector<std::string> more;  // kernels, regions, calls that the others do not have
};
struct StragglerFacts {
  std::vector<Straggler> stragglers;  // most costly first; empty: none
  bool tested = false;                // false: `note` says why not
  std::string note;
};

struct OutlierStep {
  int32_t rank_index = 0, step_index = 0;  // into JobFacts::ranks, RankFacts::steps
  int64_t excess_ns = 0;                   // over the median of the other steps
  std::string
      cause;  // "allocator", "host", "copy", "collective", "input", "compute", "first step", ...
  std::string evidence;
};

struct JobFacts {
  std::vector<RankFacts> ranks;  // by rank
  int32_t world_size = 1;
  std::vector<MatchedCollective> collectives;    // by the common clock
  std::vector<CollectiveKind> collective_kinds;  // most exposed first
  std::vector<RankClock> clocks;                 // as `ranks`
  std::vector<RankWaits> waits;                  // as `ranks`
  LayoutFacts layout;
  std::optional<PipelineFacts> pipeline;
  StragglerFacts straggler;
  std::vector<OutlierStep> outliers;
  std::vector<Topology> topologies;
  std::vector<NcclFacts> nccl;
  std::vector<MemoryFacts> loose_memory;  // snapshots that belong to no rank that was read
  std::vector<std::string> warnings;
};

// `ranks` in any order; two files of one rank: the later one is left out, with a warning.
// Snapshots' facts were already given to their ranks. Throws nothing for odd input: gaps are
// stated in `warnings`.
JobFacts measure_job(std::vector<RankFacts> ranks,
                     std::vector<Topology> topologies,
                     std::vector<NcclFacts> nccl);

}  // namespace vitrine

// The step as data: for one rank, the actions of a training step with their lanes and dependencies.
// Executed by the runner, costed by the planner, named by the recorder, printed by `vitrine
// explain`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schedule/graph.h"

namespace vitrine {

enum class ActionKind : uint8_t {
  kReserve,  // make room for what a gather or a reduction fills
  kGather,   // all_gather a sharded unit's parameters (ZeRO-3)
  kRelease,  // let go of gathered parameters, or of what a reduction that has ended was made from
  kForward,
  kBackward,  // includes recomputation where the strategy asks for it
  kReduce,    // reduce_scatter gradients (stage 0: and all_gather them)
  kSend,      // an edge's value, or its gradient, to another pipeline stage
  kReceive,
  kNorm,     // global gradient norm, losses and overflow flags: one small all_gather over all ranks
  kUpdate,   // optimizer on this rank's shard
  kPublish,  // all_gather updated parameters (stages 1, 2 and persistent units of 3)
};
constexpr size_t kActionKinds = 11;
const char* action_kind_name(ActionKind kind);

// Where an action runs: a worker thread on the CPU, a stream on a GPU. In order within a lane. What
// gathers and reductions hold is reserved and released on the compute lane, whose order is fixed:
// how far another lane lags does not change the memory of a step.
enum class LaneId : uint8_t {
  kCompute,
  kGather,
  kReduce,
  kSendDown,  // to later pipeline stages (activations)
  kReceiveDown,
  kSendUp,  // to earlier stages (gradients)
  kReceiveUp,
  kCount,
};
const char* lane_name(LaneId lane);

struct Action {
  ActionKind kind{};
  LaneId lane{};
  int micro_batch = -1;
  int block = -1;
  std::vector<int> units;     // of all that is not compute or between stages; several = one bucket
  int edge = -1;              // of send and receive
  int peer = -1;              // global rank, of send and receive
  bool of_reduction = false;  // of reserve and release: for a reduction (else for a gather)
  bool first_micro = false;   // of a reduction: overwrite the shard's gradient instead of adding
  std::vector<int> waits;     // actions of other lanes that must be done first (own lane: by order)
  int64_t sent_bytes = 0;     // by this rank
};

// Elements and bytes that communication of one step sends from this rank, by purpose.
struct TrafficCount {
  int64_t gather_bytes = 0, reduce_bytes = 0, publish_bytes = 0, pipeline_bytes = 0,
          control_bytes = 0;
  int64_t total() const {
    return gather_bytes + reduce_bytes + publish_bytes + pipeline_bytes + control_bytes;
  }
};

struct Schedule {
  int rank = 0;
  std::vector<Action> actions;    // every lane's order is its subsequence
  std::vector<int> forward_end;   // [micro-batch]: actions below this index finish its forward
  std::vector<int> backward_end;  // likewise for its backward
  std::vector<std::string> skipped_gathers;  // "embed in backward: not read", ... each once
  std::vector<int> blocks;                   // that this rank runs (its pipeline stage), ascending
  TrafficCount traffic() const;
};

// For rank `rank` of the strategy's mesh: a training step, or the forward of one micro-batch alone.
// Throws ConfigError when the model cannot be cut as asked.
Schedule build_schedule(const Graph& graph,
                        const Strategy& strategy,
                        int rank,
                        bool forward_only = false);

// Blocks of each pipeline stage: contiguous, balanced by forward cost.
std::vector<std::vector<int>> cut_stages(const Graph& graph, int stages);

// One compute action each, in the order in which a stage runs them.
struct ComputeOp {
  bool backward = false;
  int block = -1, micro_batch = -1;
};
std::vector<ComputeOp> compute_order(const std::vector<int>& blocks,
                                     const Graph& graph,
                                     int stage,
                                     const Strategy& strategy,
                                     bool forward_only = false);

// The bytes of the control message of kNorm.
constexpr int64_t kControlBytes = int64_t{70} * 8;  // exact sum, loss, rank 0's progress

// The schedule in words, a line an action, for `explain`. And as JSON text (golden-tested).
std::string describe_schedule(const Schedule& schedule, const Graph& graph);
std::string schedule_json(const Schedule& schedule, const Graph& graph);

}  // namespace vitrine

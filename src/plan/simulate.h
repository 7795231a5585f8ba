// The step of a pipeline as discrete events: stages are servers that take their work in order,
// links carry what one stage sends the next.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/pipeline_order.h"

namespace vitrine {

// Nanoseconds of one chunk's work on one micro-batch.
struct ChunkTimes {
  double forward = 0, backward = 0, weight = 0;  // weight: 0 where it is part of backward
};

struct PipelineTimes {
  PipelineSize size;
  bool v_shaped = false;
  std::vector<ChunkTimes> chunk;  // [stage * chunks + chunk]
  double transfer_ns = 0;         // of one micro-batch's activations to the next position
  // What comes round from the last stage to the first (and back) is waited for by the first
  // micro-batch of each group of `stages` alone, as the zero-bubble paper's simulator has it for
  // interleaved 1F1B. False: by every one, as a run has to.
  bool round_by_group = false;
  // Of a micro-batch's memory, what its weight gradient still needs after its backward (inputs of
  // products and gradients of their outputs).
  double weight_held = 1;
};

struct PipelineSpan {
  int stage = 0;
  PipelineItem item;
  double begin_ns = 0, end_ns = 0;
};

struct PipelineResult {
  double makespan_ns = 0;
  std::vector<double> busy_ns, begin_ns, end_ns;  // by stage: work, its first begin, its last end
  // By stage x chunk: its first forward's begin; its last backward's (or weight gradient's) end.
  std::vector<double> chunk_begin_ns, chunk_end_ns;
  std::vector<PipelineSpan> spans;  // where asked for
  // 1 - busy / (end - begin) of the stage that takes longest from its first to its last work, as
  // the zero-bubble paper counts: stages that start late may end late, where no barrier closes the
  // step.
  double bubble_rate() const;
};

using PipelineOrders = std::vector<std::vector<PipelineItem>>;  // by stage

// Runs every stage's order to its end. Throws ConfigError if the orders wait for each other in a
// circle (naming where).
PipelineResult simulate_pipeline(const PipelineTimes& times,
                                 const PipelineOrders& orders,
                                 bool keep_spans = false);

// ZB-V (Qi et al. 2024): two chunks a stage, there and back; what runs next is decided by what is
// ready, backward first, then forward while memory allows, then weight gradients. `limit`:
// (chunk, micro-batch) pairs alive on a stage (2 stages = the memory of 1F1B).
PipelineOrders zero_bubble_v_orders(const PipelineTimes& times, int limit);

}  // namespace vitrine

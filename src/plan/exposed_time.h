// The pipeline of a step, and what of the data-parallel communication its work does not hide.
// Nanoseconds.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/predict.h"

namespace vitrine {

// Time of the pipeline with `micros` micro-batches; beyond some rounds the steady state goes on in
// a straight line.
struct Makespan {
  PipelineResult result;
  double total_ns = 0;
  std::vector<double> end_ns;
};

Makespan run_pipeline(const ClusterStrategy& strategy, PipelineTimes times, int64_t micros);

// What ZeRO-3's communication adds to one forward and one backward of a chunk. One lane of
// communication; the next block's gather, and the reduction of the block before, run beside a
// block's products.
struct SharedPass {
  double forward = 0, backward = 0;  // exposed, all
  double gather = 0, reduce = 0;     // of that
  double slow_forward = 0, slow_backward = 0;
};

// `blocks`: of the chunk, in the order of the forward.
SharedPass shared_pass(const std::vector<BlockPiece>& blocks,
                       bool first_chunk,
                       const ClusterStrategy& strategy,
                       int64_t micros);

// What of a reduction in equal parts, one after each block's last backward, ends after the stage's
// last work. A chunk that is done early hides its parts behind the others.
double exposed_after(const StagePieces& stage, double reduce, const PipelineResult& run, int at);

// How late gathers of new weights, in equal parts in the order of the blocks, make the next step's
// forwards.
double exposed_before(const StagePieces& stage, double publish, const PipelineResult& run, int at);

}  // namespace vitrine

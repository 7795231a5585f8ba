// Constants of the planner from what a machine's GPUs did.
#pragma once

#include <string>

#include "machines/accelerators.h"
#include "machines/measured_gpus.h"

namespace vitrine {

// Shares are of the card's peaks, at most 1; 0: nothing was measured that says it, so that a
// profile's base keeps its own. Each is the sum of what the planner's own formulas (plan/op_time.h,
// plan/collective_time.h) give at a share of 1 over the sum of what was measured.
struct FittedGpus {
  // The shipped profile whose card this is; "" where the card is not known, or is a part of one
  // (MIG), which has less memory.
  std::string base;
  // The table's, or one that is not in it, without a name and with the measured rates as its peaks.
  Accelerator card{};
  double ceiling = 0, narrow_ceiling = 0;  // one large product, alone: bf16, fp8
  double matmul = 0;                       // products back to back
  double narrow_share = 0;                 // the same of fp8 against bf16, roundings apart
  double memory = 0;                       // passes
  // As Efficiency's, of this engine's kernels on this architecture.
  double fill = 0;
  bool swiglu_in_products = false;
  // Of what the model gives collectives over the card's links, or over the host link that was
  // measured where cards have none: NCCL's, and the copy engines'. Over 1 where they did better.
  // 0: one GPU, or (copies) GPUs that do not reach each other's memory.
  double communication = 0, copies = 0;
  // Of a card that is not known, a card and direction, such that the better of the two is 1.
  double link_bytes_per_s = 0;
};

// Throws ConfigError where nothing in bf16 was measured.
FittedGpus fit_gpus(const MeasuredGpus& measured);

}  // namespace vitrine

// Constants of the planner from what a machine's GPUs did.
#pragma once

#include <string>

#include "machines/measured_gpus.h"

namespace vitrine {

// Shares are of the card's peaks, in (0, 1]; 0: nothing was measured that says it, so that a
// profile's base keeps its own. Each is the sum of what the planner's own formulas (plan/op_time.h,
// plan/collective_time.h) give at a share of 1 over the sum of what was measured.
struct FittedGpus {
  std::string base;  // the shipped profile whose card this is; "" where the card is not known
  // Peaks: the table's, or the measured ones of a card that is not in it.
  double bf16_flops_per_s = 0, fp16_flops_per_s = 0, fp8_flops_per_s = 0, tf32_flops_per_s = 0,
         fp32_flops_per_s = 0, memory_bytes_per_s = 0;
  double ceiling = 0, narrow_ceiling = 0;  // one large product, alone: bf16, fp8
  double matmul = 0;                       // products back to back
  double narrow_share = 0;                 // the same of fp8 against bf16, roundings apart
  double memory = 0;                       // passes
  // As Efficiency's, of this engine's kernels on this architecture.
  double fill = 0;
  bool swiglu_in_products = false;
  // Of a card and direction; 0: one GPU. `communication` is NCCL's share of it, `copies` that of
  // copy engines (0: GPUs do not reach each other's memory). One of the two is 1 where the link
  // did better than its nominal rate, which is then raised.
  double link_bytes_per_s = 0, communication = 0, copies = 0;
};

// Throws ConfigError where nothing in bf16 was measured.
FittedGpus fit_gpus(const MeasuredGpus& measured);

}  // namespace vitrine

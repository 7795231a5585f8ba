// Kernels of the GPU's StepMath, and what they keep on the device. All work goes to gpu::stream().
#pragma once

#include <span>

#include "core/shape.h"
#include "gpu/device_kernels.h"
#include "optim/gpu/fixed_sum.h"
#include "optim/optim.h"
#include "optim/step_math.h"

namespace vitrine::gpu {

// What one rank tells the others: plain 8-byte words.
struct StepMessage {
  unsigned long long piece[FixedSum::kPieces];  // of the sum of squares; carries may be pending
  unsigned long long overflow;                  // how many blocks met what FixedSum cannot hold
  double loss;
  double progress;
};

// What combine found, in device memory.
struct StepResult {
  double loss;
  double gradient_norm;
  double progress;
  double factor;  // for gradients: clip and loss scale
  int64_t overflow;
};

void launch_add_loss(StepMessage* own, const TensorView& loss, double weight);
void launch_progress(StepMessage* own, double progress);
// `data` points at an element whose index in its unit is a multiple of kNormChunk.
void launch_squares(StepMessage* own, const void* data, DType dtype, int64_t count);
// out = the terms, as sum_arrays() of gpu/device_kernels.h, and launch_squares() of it in one pass.
void launch_sum_adding_squares(
    StepMessage* own, void* out, const Terms& terms, DType dtype, int64_t count);
void launch_combine(StepResult* result,
                    const StepMessage* messages,
                    int ranks,
                    const NormInput& input);
// `step` holds the numbers of a range with decay; its gradient_scale is not read. Changes nothing
// when result->overflow is set.
void launch_update(const AdamWStep& step,
                   const StepResult* result,
                   std::span<const UpdateRange> ranges,
                   const UpdateArrays& arrays);

}  // namespace vitrine::gpu

// Rows of logits: their log-sum-exp, the loss of their target, their gradient in place.
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace vitrine::gpu {

// Logits[rows, vocabulary] of the rows [first_row, first_row + rows) of a call. `lse` and
// `row_loss` are f32 (f64 under f64) and, like `target`, begin at row first_row. Targets below 0
// are ignored: loss 0, gradient 0; targets at or above the vocabulary too, and are noted as a fault
// (gpu/fault.h).
struct LogitRows {
  DType dtype = DType::kF32;
  void* logits = nullptr;
  const int32_t* target = nullptr;
  int64_t rows = 0, vocabulary = 0, first_row = 0;
  void* lse = nullptr;
  void* row_loss = nullptr;
};

// lse and row_loss; logits stay.
void softmax_statistics(const LogitRows& rows);
// lse and row_loss; logits become softmax - onehot(target), the gradient of the sum of the rows'
// losses.
void softmax_loss_and_gradient(const LogitRows& rows);
// Logits become factor (softmax - onehot(target)), from lse. `factor` is on the device, of the wide
// dtype; null: 1.
void softmax_gradient(const LogitRows& rows, const void* factor);

// loss[1] = mean of row_loss over the rows with a target in [0, vocabulary), 0 when there are none;
// count[1] = their number. All of the wide dtype, in a fixed order.
void mean_loss(DType dtype,
               const int32_t* target,
               int64_t rows,
               int64_t vocabulary,
               const void* row_loss,
               void* loss,
               void* count);

// scales[0..4) = {factor, 0, factor, 1} with factor = dloss / count (0 when count is 0), of the
// wide dtype: what Gemm::scales and store_scaled() read.
void loss_scales(DType dtype, const void* dloss, const void* count, void* scales);

}  // namespace vitrine::gpu

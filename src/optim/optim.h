// AdamW, learning-rate schedules, dynamic loss scaling and the exact gradient norm.
#pragma once

#include <cstdint>
#include <string>

#include "core/dtype.h"
#include "core/exact_sum.h"

namespace vitrine {

struct OptimizerConfig {
  double lr = 3e-4, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;
  double clip = 1.0;  // global L2 norm; 0 = no clipping
};

// The numbers of one AdamW step, in the order of PyTorch's torch.optim.AdamW.
struct AdamWStep {
  float lr = 0, beta1 = 0, beta2 = 0, eps = 0;
  float decay = 1;  // 1 - lr * weight_decay, or 1
  float bias_correction1 = 1, sqrt_bias_correction2 = 1;
  float gradient_scale = 1;  // multiplies every gradient: 1 / loss scale, times the clip factor
};
AdamWStep adamw_step(
    const OptimizerConfig& config, double lr, int64_t step, double gradient_scale, bool decay);

// Updates `count` elements of master, exp_avg, exp_avg_sq in place and writes the rounded
// parameter. `parameter` may be `master` itself (fp32 training). Bitwise independent of how ranges
// are cut.
void adamw_update(const AdamWStep& step,
                  float* master,
                  float* exp_avg,
                  float* exp_avg_sq,
                  const void* gradient,
                  DType gradient_dtype,
                  void* parameter,
                  DType parameter_dtype,
                  int64_t count);

constexpr int64_t kNormChunk = 64;
// Adds the squares of elements [begin, end) of a unit to `sum`: one fp64 sum a chunk of kNormChunk
// elements of the unit (so `begin` is a multiple of it), then exact. `data` points at element
// `begin`.
void add_squares(const void* data, DType dtype, int64_t begin, int64_t end, ExactSum& sum);

// Learning rate over a run: linear warm-up from 0, then the shape down to `final_ratio * lr`.
struct LearningRateSchedule {
  enum class Shape : uint8_t { kConstant, kLinear, kCosine } shape = Shape::kCosine;
  double final_ratio = 0.05;
  int64_t warmup_steps = 0;
  int64_t total_steps = 0;  // 0 = unknown: the caller gives progress instead
  // `step` counts from 0; `progress` in [0, 1] is used when total_steps is 0 (runs bounded by
  // time).
  double at(double lr, int64_t step, double progress = 0) const;
};

// Dynamic loss scaling as in DeepSpeed: overflow halves the scale once the
// hysteresis is used up, `window` good steps in a row double it.
struct LossScaler {
  bool dynamic = true;
  double scale = 65536, min_scale = 1;
  int64_t window = 1000, hysteresis = 2;
  bool consecutive_hysteresis = false;
  // State:
  int64_t good_steps = 0, hysteresis_left = 2, skipped_steps = 0;

  // True when the step may be applied. Throws NumericError on overflow at the floor.
  bool update(bool overflow);
};

}  // namespace vitrine

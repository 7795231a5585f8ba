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
  int64_t step = 0;          // from 1; rounding depends on it
  float gradient_scale = 1;  // multiplies every gradient: 1 / loss scale, times the clip factor
};
AdamWStep adamw_step(
    const OptimizerConfig& config, double lr, int64_t step, double gradient_scale, bool decay);

// Elements [begin, end) of arrays that an update is given, all of one parameter.
struct UpdateRange {
  int64_t begin = 0, end = 0;
  bool decay = true;  // whether weight decay applies
  // For stochastic rounding: stream_of() the parameter's name, and the element of the parameter
  // that is at `begin`.
  uint64_t stream = 0;
  int64_t first_element = 0;
};

// Arrays of one unit, element 0 first. `parameters` may be `master` itself (fp32 training, and
// always so of bf16 masters). Masters and moments are f32, or bf16 under bf16 parameters.
struct UpdateArrays {
  void* master = nullptr;
  void* exp_avg = nullptr;
  void* exp_avg_sq = nullptr;
  const void* gradients = nullptr;
  DType gradient_dtype = DType::kF32;
  void* parameters = nullptr;
  DType parameter_dtype = DType::kF32;
  DType master_dtype = DType::kF32, moment_dtype = DType::kF32;
  uint64_t seed = 0;  // of the run, for stochastic rounding
};
// Throws ConfigError for dtypes other than these.
void check_update_arrays(const UpdateArrays& arrays);

// Updates a range of master and moments in place, in fp32, and writes the parameter rounded to
// nearest where it is not the master. States in bf16 are rounded stochastically
// (optim/stochastic_rounding.h). Bitwise independent of how ranges are cut.
void adamw_update(const AdamWStep& step, const UpdateArrays& arrays, const UpdateRange& range);

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

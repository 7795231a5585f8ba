// The AdamW update. 28 bytes an element with fp32 gradients: bound by memory.
#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/parallel.h"
#include "optim/optim.h"

namespace vitrine {
namespace {

constexpr int64_t kTile = 1024;

// Plain IEEE operations in one fixed order; the loop is over independent elements.
void update_tile(const AdamWStep& s,
                 float* __restrict master,
                 float* __restrict m,
                 float* __restrict v,
                 const float* __restrict g,
                 int64_t count) {
  const float one_minus_beta1 = 1 - s.beta1, one_minus_beta2 = 1 - s.beta2;
  const float step_size = s.lr / s.bias_correction1;
  for (int64_t i = 0; i < count; ++i) {
    const float gradient = g[i] * s.gradient_scale;
    const float m1 = s.beta1 * m[i] + one_minus_beta1 * gradient;
    const float v1 = s.beta2 * v[i] + one_minus_beta2 * (gradient * gradient);
    m[i] = m1;
    v[i] = v1;
    const float denominator = std::sqrt(v1) / s.sqrt_bias_correction2 + s.eps;
    master[i] = master[i] * s.decay - step_size * (m1 / denominator);
  }
}

}  // namespace

AdamWStep adamw_step(
    const OptimizerConfig& config, double lr, int64_t step, double gradient_scale, bool decay) {
  AdamWStep s;
  s.lr = static_cast<float>(lr);
  s.beta1 = static_cast<float>(config.beta1);
  s.beta2 = static_cast<float>(config.beta2);
  s.eps = static_cast<float>(config.eps);
  s.decay = decay ? static_cast<float>(1 - lr * config.weight_decay) : 1.0f;
  const auto t = static_cast<double>(step);
  s.bias_correction1 = static_cast<float>(1 - std::pow(config.beta1, t));
  s.sqrt_bias_correction2 = static_cast<float>(std::sqrt(1 - std::pow(config.beta2, t)));
  s.gradient_scale = static_cast<float>(gradient_scale);
  return s;
}

void adamw_update(const AdamWStep& step,
                  float* master,
                  float* exp_avg,
                  float* exp_avg_sq,
                  const void* gradient,
                  DType gradient_dtype,
                  void* parameter,
                  DType parameter_dtype,
                  int64_t count) {
  const int64_t tiles = (count + kTile - 1) / kTile;
  const auto bytes = static_cast<int64_t>(dtype_bytes(gradient_dtype));
  const auto parameter_bytes = static_cast<int64_t>(dtype_bytes(parameter_dtype));
  parallel_for(tiles, 16, [&](int64_t first, int64_t last) {
    alignas(64) float converted[kTile];
    for (int64_t tile = first; tile < last; ++tile) {
      const int64_t begin = tile * kTile, n = std::min(kTile, count - begin);
      const std::byte* g = static_cast<const std::byte*>(gradient) + begin * bytes;
      if (gradient_dtype != DType::kF32) convert(DType::kF32, converted, gradient_dtype, g, n);
      update_tile(step,
                  master + begin,
                  exp_avg + begin,
                  exp_avg_sq + begin,
                  gradient_dtype == DType::kF32 ? reinterpret_cast<const float*>(g) : converted,
                  n);
      if (parameter != master) {
        convert(parameter_dtype,
                static_cast<std::byte*>(parameter) + begin * parameter_bytes,
                DType::kF32,
                master + begin,
                n);
      }
    }
  });
}

}  // namespace vitrine

// The AdamW update. 28 bytes an element with fp32 states and gradients: bound by memory. With bf16
// states 16, and some 5 cycles of Philox for the three roundings.
#include <algorithm>
#include <cmath>
#include <string>
#include <type_traits>

#include "core/error.h"
#include "core/parallel.h"
#include "optim/optim.h"
#include "optim/stochastic_rounding.h"

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

template <typename T>
T* bytes_at(T* base, int64_t element, DType dtype) {
  using Byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
  return static_cast<Byte*>(base) + element * static_cast<int64_t>(dtype_bytes(dtype));
}

// `count` elements from `begin` as floats: in place, or converted into `room`.
float* widened(void* base, DType dtype, int64_t begin, int64_t count, float* room) {
  void* at = bytes_at(base, begin, dtype);
  if (dtype == DType::kF32) return static_cast<float*>(at);
  convert(DType::kF32, room, dtype, at, count);
  return room;
}

// The random words of a tile's elements, whose first is `element` of the parameter.
class TileNoise {
 public:
  void fill(const RoundingBits& bits, int64_t element, int64_t count) {
    first_ = element / kBlock;
    element_ = element;
    for (int64_t block = first_; block * kBlock < element + count; ++block) {
      bits.words(block, words_[block - first_]);
    }
  }
  uint32_t of(RoundingBits::Array array, int64_t i) const {
    const int64_t at = element_ + i;
    return rounding_noise(words_[at / kBlock - first_], array, static_cast<int>(at % kBlock));
  }

 private:
  static constexpr int64_t kBlock = RoundingBits::kBlock;
  uint32_t words_[kTile / kBlock + 1][4];
  int64_t first_ = 0, element_ = 0;
};

// What widened() gave goes back.
void narrow(const float* values,
            void* base,
            DType dtype,
            int64_t begin,
            int64_t count,
            const TileNoise& noise,
            RoundingBits::Array array) {
  if (dtype == DType::kF32) return;
  auto* out = static_cast<bf16*>(bytes_at(base, begin, dtype));
  for (int64_t i = 0; i < count; ++i) {
    out[i].bits = stochastic_bf16(values[i], noise.of(array, i));
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
  s.step = step;
  const auto t = static_cast<double>(step);
  s.bias_correction1 = static_cast<float>(1 - std::pow(config.beta1, t));
  s.sqrt_bias_correction2 = static_cast<float>(std::sqrt(1 - std::pow(config.beta2, t)));
  s.gradient_scale = static_cast<float>(gradient_scale);
  return s;
}

void check_update_arrays(const UpdateArrays& arrays) {
  for (const DType dtype : {arrays.master_dtype, arrays.moment_dtype}) {
    if (dtype == DType::kF32) continue;
    if (dtype != DType::kBF16 || arrays.parameter_dtype != DType::kBF16) {
      throw ConfigError(std::string("adamw: ") + dtype_name(dtype) + " states of " +
                        dtype_name(arrays.parameter_dtype) +
                        " parameters are not made: states are f32, or bf16 of bf16 parameters");
    }
  }
  if (arrays.master_dtype == DType::kBF16 && arrays.parameters != arrays.master) {
    throw ConfigError("adamw: bf16 masters are the parameters themselves");
  }
}

void adamw_update(const AdamWStep& step, const UpdateArrays& arrays, const UpdateRange& range) {
  check_update_arrays(arrays);
  const int64_t tiles = (range.end - range.begin + kTile - 1) / kTile;
  const uint64_t key = Philox(arrays.seed, range.stream).key();
  const RoundingBits bits{static_cast<uint32_t>(key),
                          static_cast<uint32_t>(key >> 32),
                          static_cast<uint32_t>(step.step)};
  const bool rounds = arrays.master_dtype != DType::kF32 || arrays.moment_dtype != DType::kF32;
  parallel_for(tiles, 16, [&](int64_t first, int64_t last) {
    alignas(64) float converted[kTile], masters[kTile], first_moments[kTile], second_moments[kTile];
    TileNoise noise;
    for (int64_t tile = first; tile < last; ++tile) {
      const int64_t begin = range.begin + tile * kTile, n = std::min(kTile, range.end - begin);
      const void* g = bytes_at(arrays.gradients, begin, arrays.gradient_dtype);
      if (arrays.gradient_dtype != DType::kF32) {
        convert(DType::kF32, converted, arrays.gradient_dtype, g, n);
        g = converted;
      }
      float* master = widened(arrays.master, arrays.master_dtype, begin, n, masters);
      float* m = widened(arrays.exp_avg, arrays.moment_dtype, begin, n, first_moments);
      float* v = widened(arrays.exp_avg_sq, arrays.moment_dtype, begin, n, second_moments);
      update_tile(step, master, m, v, static_cast<const float*>(g), n);
      if (arrays.parameters != arrays.master) {
        convert(arrays.parameter_dtype,
                bytes_at(arrays.parameters, begin, arrays.parameter_dtype),
                DType::kF32,
                master,
                n);
      }
      if (rounds) noise.fill(bits, begin - range.begin + range.first_element, n);
      const auto put = [&](const float* x, void* to, DType dtype, RoundingBits::Array array) {
        narrow(x, to, dtype, begin, n, noise, array);
      };
      put(master, arrays.master, arrays.master_dtype, RoundingBits::kMaster);
      put(m, arrays.exp_avg, arrays.moment_dtype, RoundingBits::kExpAvg);
      put(v, arrays.exp_avg_sq, arrays.moment_dtype, RoundingBits::kExpAvgSq);
    }
  });
}

}  // namespace vitrine

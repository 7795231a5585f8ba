// The micro benchmark of the optimizer on the GPU.
#include "optim/gpu/bench_gpu_update.h"

#include <array>

#include "core/error.h"
#include "gpu/gpu.h"
#include "gpu/timing.h"
#include "optim/step_math.h"

namespace vitrine {
namespace {

// qkv with bias, output, gate and up, down, two norms.
constexpr int64_t kElements = 1536 * 2048 + 2048 + 1536 * 1536 + 3 * 1536 * 8960 + 2 * 1536;
constexpr int kSets = 2;  // each far larger than the L2 cache

class Arrays {
 public:
  explicit Arrays(Device& device) : device_(device) {
    for (void*& block : blocks_) {
      block = device.allocate(kBytes);
      if (!block) throw OutOfMemory(device.name() + ": no memory for a benchmark");
      // Small positive numbers in either dtype: 0x3c3c3c3c is 0.0115, 0x3c3c 0.0115 too.
      std::vector<unsigned char> host(kBytes, 0x3c);
      device.upload(block, host.data(), kBytes);
    }
    arrays_ = {
        blocks_[0], blocks_[1], blocks_[2], blocks_[3], DType::kF32, blocks_[4], DType::kBF16};
  }
  ~Arrays() {
    for (void* block : blocks_) {
      if (block) device_.release(block, kBytes);
    }
  }
  Arrays(const Arrays&) = delete;
  Arrays& operator=(const Arrays&) = delete;
  const UpdateArrays& get() const { return arrays_; }

 private:
  static constexpr size_t kBytes = static_cast<size_t>(kElements) * sizeof(float);

  Device& device_;
  std::array<void*, 5> blocks_{};
  UpdateArrays arrays_;
};

}  // namespace

std::vector<GpuUpdateTiming> bench_gpu_update(int samples, int gpu) {
  const auto device = make_gpu_device(gpu);
  device->enter_lane(0);
  std::vector<GpuUpdateTiming> timings;
  {
    const std::array<Arrays, kSets> sets{Arrays(*device), Arrays(*device)};
    const auto math = make_gpu_step_math();
    math->begin();
    math->combine(1, {});
    const OptimizerConfig config;
    const std::array<UpdateRange, 1> range{UpdateRange{0, kElements, true}};
    const auto of = [&](int set) -> const UpdateArrays& {
      return sets[static_cast<size_t>(set)].get();
    };
    const auto time = [&](const char* pass, double bytes, const auto& issue) {
      const double ns = gpu::median_ns(kSets, samples, issue, issue);
      timings.push_back({pass, kElements, ns, bytes * static_cast<double>(kElements) / ns});
    };
    // Master and both moments are read and written, the gradient read, the parameter written.
    time("adamw", 3 * 8 + 4 + 2, [&](int set) {
      math->update(config, config.lr, 1, range, of(set));
    });
    // The same with masters and moments in bf16, in the first halves of their arrays.
    time("adamw_bf16_states", 3 * 4 + 2, [&](int set) {
      UpdateArrays arrays = of(set);
      arrays.parameters = arrays.master;
      arrays.master_dtype = arrays.moment_dtype = arrays.gradient_dtype = DType::kBF16;
      math->update(config, config.lr, 1, range, arrays);
    });
    time("gradient_squares", 4, [&](int set) {
      math->add_squares(of(set).gradients, DType::kF32, 0, kElements);
    });
    time("bf16_gradient_squares", 2, [&](int set) {
      math->add_squares(of(set).gradients, DType::kBF16, 0, kElements);
    });
    // What one of two ranks does with its part of a gradient: two terms read, their sum written.
    time("bf16_terms_and_squares", 2 + 2 + 2, [&](int set) {
      const UpdateArrays& arrays = of(set);
      const std::array<const void*, 2> terms{arrays.gradients, arrays.exp_avg};
      math->sum_adding_squares(arrays.parameters, terms, DType::kBF16, 0, kElements);
    });
    device->synchronize();
  }
  return timings;
}

}  // namespace vitrine

// The sums and the update of a step on a GPU: nothing waits before sums().
#include <utility>

#include "core/error.h"
#include "gpu/runtime.h"
#include "optim/gpu/step_kernels.h"
#include "optim/step_math.h"

namespace vitrine {
namespace {

// Device memory that belongs to one StepMath.
class Block {
 public:
  Block() = default;
  explicit Block(size_t bytes) { VITRINE_GPU_CHECK(cudaMalloc(&data_, bytes)); }
  ~Block() {
    if (data_) cudaFree(data_);
  }
  Block(Block&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  Block& operator=(Block&& other) noexcept {
    std::swap(data_, other.data_);
    return *this;
  }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
};

class GpuStepMath final : public StepMath {
 public:
  GpuStepMath()
      : own_(sizeof(gpu::StepMessage)),
        result_(sizeof(gpu::StepResult)),
        host_(gpu::pinned(sizeof(gpu::StepResult))) {
    begin();
    // An update before the first combine() changes nothing.
    VITRINE_GPU_CHECK(
        cudaMemsetAsync(result_.as<void>(), 0xff, sizeof(gpu::StepResult), gpu::stream()));
  }

  void begin() override {
    VITRINE_GPU_CHECK(cudaMemsetAsync(own_.as<void>(), 0, sizeof(gpu::StepMessage), gpu::stream()));
  }

  void add_loss(const TensorView& loss, double weight) override {
    gpu::launch_add_loss(own(), loss, weight);
  }

  double local_loss() override {
    auto* loss = static_cast<double*>(host_);
    fetch(loss, &own()->loss, sizeof(double));
    return *loss;
  }

  void add_squares(const void* data, DType dtype, int64_t begin, int64_t end) override {
    VITRINE_ASSERT(begin % kNormChunk == 0);
    gpu::launch_squares(own(), data, dtype, end - begin);
  }

  void sum_adding_squares(void* out,
                          std::span<const void* const> terms,
                          DType dtype,
                          int64_t begin,
                          int64_t end) override {
    VITRINE_ASSERT(begin % kNormChunk == 0);
    VITRINE_ASSERT(terms.size() <= static_cast<size_t>(gpu::Terms::kMost));
    gpu::Terms some;
    for (const void* const term : terms) some.of[some.count++] = term;
    gpu::launch_sum_adding_squares(own(), out, some, dtype, end - begin);
  }

  size_t message_bytes() const override { return sizeof(gpu::StepMessage); }

  std::span<const std::byte> message(double progress) override {
    gpu::launch_progress(own(), progress);
    return {own_.as<const std::byte>(), message_bytes()};
  }

  std::span<std::byte> room(int ranks) override {
    if (ranks > room_ranks_) {
      room_ = Block(message_bytes() * static_cast<size_t>(ranks));
      room_ranks_ = ranks;
    }
    return {room_.as<std::byte>(), message_bytes() * static_cast<size_t>(ranks)};
  }

  void combine(int ranks, const NormInput& input) override {
    VITRINE_ASSERT(ranks == 1 || ranks <= room_ranks_);
    const gpu::StepMessage* messages = ranks == 1 ? own() : room_.as<const gpu::StepMessage>();
    gpu::launch_combine(result_.as<gpu::StepResult>(), messages, ranks, input);
  }

  StepSums sums() override {
    auto* result = static_cast<gpu::StepResult*>(host_);
    fetch(result, result_.as<void>(), sizeof(gpu::StepResult));
    return {result->loss, result->gradient_norm, result->overflow != 0, result->progress};
  }

  void update(const OptimizerConfig& config,
              double lr,
              int64_t step,
              std::span<const UpdateRange> ranges,
              const UpdateArrays& arrays) override {
    const AdamWStep numbers = adamw_step(config, lr, step, 1, true);
    gpu::launch_update(numbers, result_.as<const gpu::StepResult>(), ranges, arrays);
  }

 private:
  gpu::StepMessage* own() { return own_.as<gpu::StepMessage>(); }

  void fetch(void* host, const void* device, size_t bytes) {
    VITRINE_GPU_CHECK(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, gpu::stream()));
    VITRINE_GPU_CHECK(cudaStreamSynchronize(gpu::stream()));
  }

  Block own_, result_, room_;
  int room_ranks_ = 0;
  void* host_;  // pinned
};

}  // namespace

std::unique_ptr<StepMath> make_gpu_step_math() { return std::make_unique<GpuStepMath>(); }

}  // namespace vitrine

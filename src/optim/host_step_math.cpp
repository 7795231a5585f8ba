// The sums and the update of a step in the host's memory.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <mutex>
#include <vector>

#include "core/error.h"
#include "optim/step_math.h"

namespace vitrine {
namespace {

// A message: the limbs of the exact sum of squares, then loss and progress as the bits of doubles.
using Message = std::array<int64_t, ExactSum::kLimbs + 2>;

class HostStepMath final : public StepMath {
 public:
  void begin() override {
    squares_ = {};
    loss_ = 0;
    progress_ = 0;
  }

  void add_loss(const TensorView& loss, double weight) override {
    double value = 0;
    convert(DType::kF64, &value, loss.dtype, loss.data, 1);
    loss_ += weight * value;
  }

  double local_loss() override { return loss_; }

  void add_squares(const void* data, DType dtype, int64_t begin, int64_t end) override {
    const std::lock_guard lock(mutex_);
    vitrine::add_squares(data, dtype, begin, end, squares_);
  }

  void sum_adding_squares(void* out,
                          std::span<const void* const> terms,
                          DType dtype,
                          int64_t begin,
                          int64_t end) override {
    constexpr int64_t kTile = 4096;
    std::array<float, kTile> sum{}, term{};
    for (int64_t done = 0; done < end - begin; done += kTile) {
      const int64_t count = std::min(kTile, end - begin - done);
      const size_t at = static_cast<size_t>(done) * dtype_bytes(dtype);
      sum.fill(0);
      for (const void* const from : terms) {
        convert(DType::kF32, term.data(), dtype, static_cast<const std::byte*>(from) + at, count);
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += term[i];
      }
      convert(dtype, static_cast<std::byte*>(out) + at, DType::kF32, sum.data(), count);
    }
    add_squares(out, dtype, begin, end);
  }

  size_t message_bytes() const override { return sizeof(Message); }

  std::span<const std::byte> message(double progress) override {
    progress_ = progress;
    std::copy(squares_.limbs().begin(), squares_.limbs().end(), own_.begin());
    own_[ExactSum::kLimbs] = std::bit_cast<int64_t>(loss_);
    own_[ExactSum::kLimbs + 1] = std::bit_cast<int64_t>(progress);
    return std::as_bytes(std::span(own_));
  }

  std::span<std::byte> room(int ranks) override {
    messages_.resize(static_cast<size_t>(ranks));
    return std::as_writable_bytes(std::span(messages_));
  }

  void combine(int ranks, const NormInput& input) override {
    ExactSum squares = squares_;
    double loss = loss_, progress = progress_;
    if (ranks > 1) {
      VITRINE_ASSERT(static_cast<size_t>(ranks) <= messages_.size());
      squares = {};
      loss = 0;
      for (int r = 0; r < ranks; ++r) {
        const Message& message = messages_[static_cast<size_t>(r)];
        ExactSum other;
        std::copy_n(message.begin(), ExactSum::kLimbs, other.limbs().begin());
        squares.add(other);
        loss += std::bit_cast<double>(message[ExactSum::kLimbs]);
      }
      progress = std::bit_cast<double>(messages_[0][ExactSum::kLimbs + 1]);
    }
    const double norm = std::sqrt(squares.value()) / input.loss_scale;
    sums_ = {loss / input.parts, norm, !std::isfinite(norm), progress};
    const bool clipped = input.clip > 0 && norm > input.clip;
    factor_ = (clipped ? input.clip / (norm + 1e-6) : 1.0) / input.loss_scale;
  }

  StepSums sums() override { return sums_; }

  void update(const OptimizerConfig& config,
              double lr,
              int64_t step,
              std::span<const UpdateRange> ranges,
              const UpdateArrays& arrays) override {
    if (sums_.overflow) return;
    for (const UpdateRange& range : ranges) {
      adamw_update(adamw_step(config, lr, step, factor_, range.decay), arrays, range);
    }
  }

 private:
  std::mutex mutex_;  // of squares_, which two lanes may add to
  ExactSum squares_;
  double loss_ = 0, progress_ = 0;
  Message own_{};
  std::vector<Message> messages_;
  StepSums sums_{0, 0, true, 0};  // an update before the first combine() changes nothing
  double factor_ = 0;
};

}  // namespace

std::unique_ptr<StepMath> make_host_step_math() { return std::make_unique<HostStepMath>(); }

}  // namespace vitrine

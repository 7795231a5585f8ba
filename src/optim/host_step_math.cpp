// Sums and updates on the host: exact sums of squares, losses in double.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <vector>

#include "core/error.h"
#include "optim/step_math.h"

namespace vitrine {
namespace {

class HostStepMath : public StepMath {
 public:
  void begin() override {
    squares_ = {};
    loss_ = 0;
    sums_ = {};
    scale_ = 1;
  }

  void add_loss(const TensorView& loss, double weight) override {
    double value = 0;
    convert(DType::kF64, &value, loss.dtype, loss.data, 1);
    loss_ += weight * value;
  }
  double local_loss() override { return loss_; }

  void add_squares(const void* data, DType dtype, int64_t begin, int64_t end) override {
    vitrine::add_squares(data, dtype, begin, end, squares_);
  }

  size_t message_bytes() const override { return sizeof(Message); }
  std::span<const std::byte> message(double progress) override {
    std::copy(squares_.limbs().begin(), squares_.limbs().end(), own_.begin());
    own_[kLoss] = std::bit_cast<int64_t>(loss_);
    own_[kProgress] = std::bit_cast<int64_t>(progress);
    return std::as_bytes(std::span(own_));
  }
  std::span<std::byte> room(int ranks) override {
    all_.resize(static_cast<size_t>(ranks));
    return std::as_writable_bytes(std::span(all_));
  }

  void combine(int ranks, const NormInput& input) override {
    ExactSum squares;
    double loss = 0;
    if (ranks == 1) {
      squares = squares_;
      loss = loss_;
      sums_.progress = std::bit_cast<double>(own_[kProgress]);
    } else {
      VITRINE_ASSERT(all_.size() == static_cast<size_t>(ranks));
      sums_.progress = std::bit_cast<double>(all_[0][kProgress]);
      for (const Message& message : all_) {
        ExactSum other;
        std::copy_n(message.begin(), ExactSum::kLimbs, other.limbs().begin());
        squares.add(other);
        loss += std::bit_cast<double>(message[kLoss]);
      }
    }
    const double norm = std::sqrt(squares.value()) / input.loss_scale;
    sums_.loss = loss / input.parts;
    sums_.gradient_norm = norm;
    sums_.overflow = !std::isfinite(norm);
    const bool clipped = input.clip > 0 && norm > input.clip;
    scale_ = (clipped ? input.clip / (norm + 1e-6) : 1.0) / input.loss_scale;
  }
  StepSums sums() override { return sums_; }

  void update(const OptimizerConfig& config,
              double lr,
              int64_t step,
              std::span<const UpdateRange> ranges,
              const UpdateArrays& arrays) override {
    if (sums_.overflow) return;
    const auto at = [](const void* base, int64_t element, DType dtype) {
      return static_cast<std::byte*>(const_cast<void*>(base)) +
             static_cast<size_t>(element) * dtype_bytes(dtype);
    };
    for (const UpdateRange& range : ranges) {
      adamw_update(adamw_step(config, lr, step, scale_, range.decay),
                   arrays.master + range.begin,
                   arrays.exp_avg + range.begin,
                   arrays.exp_avg_sq + range.begin,
                   at(arrays.gradients, range.begin, arrays.gradient_dtype),
                   arrays.gradient_dtype,
                   at(arrays.parameters, range.begin, arrays.parameter_dtype),
                   arrays.parameter_dtype,
                   range.end - range.begin);
    }
  }

 private:
  static constexpr size_t kLoss = ExactSum::kLimbs, kProgress = kLoss + 1;
  using Message = std::array<int64_t, ExactSum::kLimbs + 2>;

  ExactSum squares_;
  double loss_ = 0, scale_ = 1;
  Message own_{};
  std::vector<Message> all_;
  StepSums sums_;
};

}  // namespace

std::unique_ptr<StepMath> make_host_step_math() { return std::make_unique<HostStepMath>(); }

}  // namespace vitrine

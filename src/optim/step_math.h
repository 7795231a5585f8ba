// The sums of one step (loss, gradient norm) and the update of parameters, where the tensors live.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "core/shape.h"
#include "optim/optim.h"

namespace vitrine {

// Known when a step's work is done.
struct StepSums {
  double loss = 0;           // mean over all micro-batches and ranks
  double gradient_norm = 0;  // of the unscaled mean gradient, before clipping
  bool overflow = false;     // a gradient was not finite: updates change nothing
  double progress = 0;       // rank 0's
};

// What turns sums into a norm and a factor for gradients.
struct NormInput {
  double parts = 1;       // losses that were added up, over all ranks
  double loss_scale = 1;  // that the gradients carry
  double clip = 0;        // global L2 norm; 0 = no clipping
};

// One for each rank. Issues work into the calling thread's lane (core/device.h) and waits for
// nothing, unless said so: on a GPU every number below stays on the device until sums().
class StepMath {
 public:
  virtual ~StepMath() = default;

  // Forgets the last step's sums.
  virtual void begin() = 0;
  // Adds weight * loss ([1], floating).
  virtual void add_loss(const TensorView& loss, double weight) = 0;
  // The losses added so far. Waits for the lane.
  virtual double local_loss() = 0;
  // As add_squares() of optim.h: independent of how ranges are cut over ranks and calls.
  virtual void add_squares(const void* data, DType dtype, int64_t begin, int64_t end) = 0;
  // out[i] = terms[0][i] + terms[1][i] + ... for the elements [begin, end) of a unit, in this order
  // in fp32 and rounded once to `dtype` (no f64), and add_squares() of what it then holds. `out`
  // may be one of the terms. May be called beside the other calls of a step from another lane that
  // is behind begin() and before message().
  virtual void sum_adding_squares(
      void* out, std::span<const void* const> terms, DType dtype, int64_t begin, int64_t end) = 0;

  // What this rank tells the others (its sums and `progress`), and room for every rank's message,
  // by rank; both on the device, of the size message_bytes() a rank.
  virtual size_t message_bytes() const = 0;
  virtual std::span<const std::byte> message(double progress) = 0;
  virtual std::span<std::byte> room(int ranks) = 0;
  // From the messages in room(ranks), summed in rank order; ranks 1: from the own sums alone.
  virtual void combine(int ranks, const NormInput& input) = 0;
  // Of the last combine(). Waits for the lane.
  virtual StepSums sums() = 0;

  // adamw_update() with the factor that combine() found for gradients.
  virtual void update(const OptimizerConfig& config,
                      double lr,
                      int64_t step,
                      std::span<const UpdateRange> ranges,
                      const UpdateArrays& arrays) = 0;
};

std::unique_ptr<StepMath> make_host_step_math();
// Linked from optim/gpu; throws DeviceError in a build without GPU code. The calling thread must
// have entered a lane of its device.
std::unique_ptr<StepMath> make_gpu_step_math();

}  // namespace vitrine

// Parameters, gradients and optimizer state of one rank, sharded or not: ZeRO 0-3 as settings of
// one store. All arrays are in the memory of the ledger's device.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "core/buffer.h"
#include "optim/step_math.h"
#include "schedule/parameters.h"

namespace vitrine {

// The arrays that a checkpoint and an update speak of.
enum class OptimizerState : uint8_t { kMaster, kExpAvg, kExpAvgSq };

struct StateArray {
  void* data = nullptr;
  DType dtype = DType::kF32;

  explicit operator bool() const { return data != nullptr; }
  size_t bytes(int64_t elements) const {
    return static_cast<size_t>(elements) * dtype_bytes(dtype);
  }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data);
  }
  // From `element` on.
  void* at(int64_t element) const { return static_cast<std::byte*>(data) + bytes(element); }
};

// Full buffers hold count * padded elements (count = ranks of the data group), so that rank r's
// piece is elements [r * padded, (r + 1) * padded); padding is zero and stays zero. Methods of
// different units may be called from different lanes; of one unit, the schedule orders them.
class ShardStore {
 public:
  // Allocates and initialises what this rank holds of the units in `blocks` (its pipeline stage).
  ShardStore(const ParameterTable& table,
             const Strategy& strategy,
             const MeshPlace& place,
             const std::vector<int>& blocks,
             uint64_t seed,
             MemoryLedger& ledger);

  const ParameterTable& table() const { return table_; }
  bool local(int unit) const { return !slots_[index(unit)].skipped; }
  int ranks() const { return ranks_; }
  // What this rank owns of a unit: the canonical shard, at every stage.
  ShardRange shard(int unit) const;
  // What this rank updates: everything at stage 0, its shard otherwise.
  ShardRange updated(int unit) const;

  // --- parameters -----------------------------------------------------------------------------
  // Whole parameter. The unit must be resident or gathered.
  TensorView parameter(ParameterUse use) const;
  bool resident(int unit) const;  // held in full all the time
  // Elements [updated.begin, ...) as stored by this rank.
  void* parameter_shard(int unit) const;
  // The full buffer: the resident one, or the gathered one (allocated by open_gathered).
  void* full_parameters(int unit) const;
  void open_gathered(int unit);
  void close_gathered(int unit);

  // The point on a device from which on the others' updated pieces are in the full buffer, for
  // whoever uses it next: set by the lane that publishes, taken once by the compute lane. Null
  // where there is nothing to wait for.
  void set_published(int unit, std::shared_ptr<void> point) {
    slots_[index(unit)].published = std::move(point);
  }
  std::shared_ptr<void> take_published(int unit) {
    return std::exchange(slots_[index(unit)].published, nullptr);
  }

  // --- gradients ------------------------------------------------------------------------------
  // Where backward of one use writes: over it the first time since the step began (stages 0, 1) or
  // since the unit's last reduction (2, 3), added to it afterwards (accumulation, tied weights).
  GradView gradient(ParameterUse use);
  // Zeroes what no use contributed to since the last reduction, and padding: call before reducing.
  void settle_gradients(int unit);
  // The full gradient buffer of this micro-step (stages 2, 3) or of the step (0, 1).
  void* full_gradients(int unit) const;
  void close_full_gradients(int unit);
  // This rank's reduced gradient, element shard(unit).begin first.
  void* reduced_gradient(int unit) const;
  // Stages 2, 3: adds (or writes, in the first micro-step) a reduced piece of shard(unit).size()
  // elements.
  void accumulate_shard(int unit, const void* piece, bool first);
  // Called at the start of a step.
  void begin_step();

  // --- state ----------------------------------------------------------------------------------
  // updated(unit).size() elements from updated(unit).begin, in the strategy's dtypes. The master is
  // the parameter where there is no separate one. Null for frozen units' moments.
  StateArray state(int unit, OptimizerState kind) const;
  // Of this step: the squares of this rank's shard of `unit` are with the step's already.
  void set_squared(int unit);
  // Adds the squares of this rank's shard of every other trainable local unit.
  void add_gradient_squares(StepMath& math) const;
  // AdamW on updated(unit); `step` counts from 1.
  void update(int unit, StepMath& math, const OptimizerConfig& config, double lr, int64_t step);

  const Strategy& strategy() const { return strategy_; }

 private:
  struct Slot {
    bool skipped = false;
    bool squared = false;
    Buffer parameters, gathered, gradients, transient, master, exp_avg, exp_avg_sq;
    std::shared_ptr<void> published;
    std::vector<bool> touched;  // parameters whose full gradient holds a contribution
  };
  static size_t index(int unit) { return static_cast<size_t>(unit); }
  Device& device() const { return ledger_.device(); }
  void initialise(int unit);
  const Unit& unit_of(int unit) const { return table_.units[index(unit)]; }
  size_t compute_bytes(int64_t elements) const {
    return static_cast<size_t>(elements) * dtype_bytes(strategy_.compute_dtype);
  }
  size_t gradient_bytes(int64_t elements) const {
    return static_cast<size_t>(elements) * dtype_bytes(strategy_.gradient_dtype);
  }
  bool sharded_parameters(int unit) const;

  const ParameterTable& table_;
  Strategy strategy_;
  int ranks_, rank_index_;
  uint64_t seed_;
  MemoryLedger& ledger_;
  std::vector<Slot> slots_;
};

}  // namespace vitrine

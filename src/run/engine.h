// The training engine for loops of one's own: initialize(model, options) -> forward, backward,
// step.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "run/runner.h"

namespace vitrine {

struct EngineOptions {
  Strategy strategy;
  OptimizerConfig optimizer;
  LearningRateSchedule schedule;
  LossScaler scaler;  // used with fp16 compute only
  uint64_t seed = 1;
  // Empty: the CPU's fast rows.
  Execution execution;
  // Steps in a row whose gradients are not finite before NumericError (without loss scaling).
  int64_t max_bad_steps = 20;
};

struct StepReport {
  int64_t step = 0;  // the step just done, from 0
  double lr = 0;
  double loss_scale = 1;
  bool skipped = false;       // the gradients were not finite: parameters are unchanged
  int64_t skipped_steps = 0;  // of the run so far
  StepOutput output;
};

struct EvalReport {
  double loss = 0;  // this rank's micro-batch; 0 on pipeline stages that hold no loss
  std::map<std::string, TensorView> results;  // valid until the next call on the engine
};

// All ranks make the same calls in the same order. A misuse throws ConfigError that says what to
// do; an engine whose step threw anything else is finished.
class Engine {
 public:
  // `world` null: one rank alone. `recorder` may be null. Throws ConfigError when the mesh does not
  // fit the world, or ranks were given different models or strategies.
  Engine(Model model,
         const BatchTypes& batch,
         EngineOptions options,
         World* world,
         Recorder* recorder);
  ~Engine();

  // Another graph over the same parameters (e.g. unrolled over more steps). Returns its number; the
  // first model is 0.
  int add_variant(Model model, const BatchTypes& batch);

  // --- a loop of one's own: `accumulation` times forward and backward, then step
  // ---------------------- One micro-batch; returns this rank's loss. Not with a pipeline, which
  // interleaves micro-batches.
  double forward(const BatchViews& batch);
  // `loss` is what forward returned. The engine scales losses and clears gradients by itself.
  void backward(double loss);
  StepReport step();
  // For people who come from PyTorch: fine between steps, an error where it would throw work away.
  void clear_gradients();

  // --- or a whole step at once
  // ------------------------------------------------------------------------ `progress` in [0, 1],
  // equal on all ranks, drives schedules of runs bounded by time. `own_progress` is what this
  // rank's clock says now; rank 0's comes back in the report, for the next step.
  // With `next_too` a GPU's engine also asks for micro = accumulation, the first micro-batch of the
  // step after this one, and copies it while the GPU works on this.
  StepReport train_step(const std::function<BatchViews(int micro)>& batch,
                        int variant = 0,
                        double progress = 0,
                        double own_progress = 0,
                        bool next_too = false);

  // Forward of one micro-batch without gradients.
  EvalReport evaluate(const BatchViews& batch, int variant = 0);

  // --- checkpoints
  // ------------------------------------------------------------------------------------
  // Collective. `extra` is kept beside the engine's own entries (step, loss scale, seed). JSON
  // text.
  void save(const std::string& folder, const std::string& extra_json, int keep_last = 0);
  // Collective; from a checkpoint or a folder of them. Returns the extra JSON text. With
  // `optimizer_state` off, a checkpoint without moments is accepted and they start at zero;
  // otherwise a missing state is an error.
  std::string load(const std::string& path, bool optimizer_state = true);

  // --- traces
  // Adds what the GPU did in the recorder's window to what the recorder's take() gave, and ends the
  // tracing of the GPU; nothing on the CPU. A GPU that cannot be traced is a line in the info.
  void add_gpu_records(RankTimeline& timeline);

  int64_t steps_done() const { return steps_done_; }
  int64_t skipped_steps() const { return skipped_; }
  int rank() const { return place_.rank; }
  const Strategy& strategy() const { return options_.strategy; }
  const Graph& graph(int variant = 0) const;
  const Schedule& schedule(int variant = 0) const;
  ShardStore& store() { return *store_; }
  // Of the device's memory, and of the host's beside it (the same on the CPU).
  MemoryLedger& ledger() { return ledger_; }
  // Whether gathers and reductions go by the GPUs' copy engines.
  bool copy_engines() const { return comms_->shares(); }
  // Blocks that were replayed as graphs, of all variants, evaluation included.
  GraphCounts graph_counts() const;
  MemoryLedger& host_ledger() { return ledger_.device().is_host() ? ledger_ : host_ledger_; }
  LaneCommunicators& communicators() { return *comms_; }

 private:
  struct Variant;
  enum class Phase : uint8_t { kReady, kForwardDone, kBackwardDone };

  void check_agreement();
  void follow_recorder(Runner& runner);
  std::string where_not_finite();
  // Batches that were fetched ahead.
  void forget_next_batches(const Runner* but_of);
  StepInput make_input(double progress);
  StepReport conclude(const StepInput& input, const StepOutput& output);
  Runner& runner(int variant);

  EngineOptions options_;
  MeshPlace place_;
  World* world_;
  Recorder* recorder_;
  std::unique_ptr<GpuTrace> gpu_trace_;
  bool gpu_trace_warm_ = false;  // started before the window
  std::string no_gpu_trace_;     // why
  MemoryLedger ledger_, host_ledger_;
  std::vector<std::unique_ptr<Variant>> variants_;
  std::unique_ptr<ShardStore> store_;
  std::unique_ptr<LaneCommunicators> comms_;
  Phase phase_ = Phase::kReady;
  int micro_ = 0;
  double last_loss_ = 0;
  BatchViews pending_batch_;
  StepInput input_;
  int64_t steps_done_ = 0, updates_ = 0, skipped_ = 0, bad_in_a_row_ = 0;
};

// The engine of one rank, from a model and options.
std::unique_ptr<Engine> initialize(Model model,
                                   const BatchTypes& batch,
                                   const EngineOptions& options,
                                   World* world = nullptr,
                                   Recorder* recorder = nullptr);

// Warns when the loss has not moved for as long as it should have.
class LossWatch {
 public:
  // Returns a warning (once) or "".
  std::string observe(int64_t step, double loss, double lr);

 private:
  double first_sum_ = 0, recent_ = 0;
  int64_t seen_ = 0;
  bool warned_ = false;
};

}  // namespace vitrine

// Executes a schedule: the compute lane on the caller's thread, every other lane on a worker of its
// own. On the host an action is done when its call returns; on a GPU it is issued, and marks (one
// an action) order the lanes' streams, so that the host runs ahead and waits once, at the step's
// end.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "gpu/cupti_recorder.h"
#include "run/activations.h"
#include "run/collectives.h"
#include "run/execution.h"
#include "run/graph_cache.h"
#include "run/shard_store.h"
#include "schedule/action.h"
#include "timeline/recorder.h"

namespace vitrine {

// Named tensors of one micro-batch, as a loader gives them.
using BatchViews = std::vector<std::pair<std::string, TensorView>>;

// What one step needs from outside.
struct StepInput {
  int64_t step = 0;    // counts from 0; shown in traces and errors
  int64_t update = 1;  // AdamW's step number, from 1: skipped steps do not count
  double lr = 0;
  OptimizerConfig optimizer;
  double loss_scale = 1;
  double progress = 0;  // of a run bounded by time, in [0, 1]; rank 0's counts
  // Called on the compute lane before a micro-batch's first forward; its views are copied at
  // once, so they need to be valid only until the next call.
  std::function<BatchViews(int micro)> batch;
  // On a GPU it may also be called for micro = accumulation, the next step's first micro-batch,
  // once all of this step is issued. What such an early call throws is left: the batch is asked for
  // again when it is due.
  bool may_ask_next = false;
};

struct StepOutput {
  double loss = 0;              // mean over all micro-batches and ranks
  double gradient_norm = 0;     // of the unscaled mean gradient, before clipping
  bool overflow = false;        // a gradient was not finite: the update was left out
  double progress = 0;          // rank 0's, the same on all ranks
  int64_t exposed_comm_ns = 0;  // compute lane waiting for communication
  int64_t data_wait_ns = 0;
  int64_t duration_ns = 0;
  // From the first to the last work in the compute lane, by the device's own clock; 0 on the host.
  int64_t device_ns = 0;
};

class Runner {
 public:
  // Everything is kept by reference and must outlive the runner; the ledger is of the execution's
  // device. `recorder` may be null.
  Runner(const Graph& graph,
         const Strategy& strategy,
         const Schedule& schedule,
         ShardStore& store,
         LaneCommunicators& comms,
         const Execution& execution,
         MemoryLedger& ledger,
         Recorder* recorder,
         bool training);
  ~Runner();

  // A whole step. Throws what an action threw; the world is then aborted and the runner is of no
  // use.
  StepOutput step(const StepInput& input);

  // The same in parts, for callers with loops of their own: begin,
  // run_until(schedule.forward_end[0]),
  // ..., finish.
  void begin(const StepInput& input);
  void run_until(int end_action);
  StepOutput finish();

  // Between steps: the next step's batch, if it is here already, is not used.
  void forget_next();

  // Device work issued from now on is attributed in `trace`; null: not traced.
  void set_gpu_trace(GpuTrace* trace) { gpu_trace_ = trace; }

  // Somebody records the process: operations are issued one by one.
  void set_watched(bool watched) { watched_ = watched; }

  // Keep these edges' values after the step, until the next begin().
  void hold_results(const std::vector<int>& edges);
  TensorView held(int edge, int micro) const { return activations_.value(edge, micro); }
  // Sum over the micro-batches run so far on this rank of sum_i weight_i * loss_i, without loss
  // scale; 0 on pipeline stages that hold no loss.
  // Waits for the device.
  double local_loss();
  // What was replayed so far; zeros where nothing may be.
  GraphCounts graph_counts() const { return graphs_ ? graphs_->counts() : GraphCounts{}; }

 private:
  struct LaneThread {
    LaneId lane;
    std::vector<int> actions;
    size_t next = 0;
    std::condition_variable wake;
    std::thread thread;
    int32_t recorder_lane = -1;
  };
  struct Names;  // interned strings

  void lane_loop(LaneThread& lane);
  void execute(int index, int32_t recorder_lane);
  void perform(const Action& action, int32_t recorder_lane);
  bool ready(const Action& action) const;        // with mutex_ held
  bool can_go_on(const LaneThread& lane) const;  // with mutex_ held: its next action may begin
  void finished(int index, LaneThread* by);      // null: the compute lane
  void wake_all();
  void wait_for(const Action& action);  // compute lane
  void fail(std::exception_ptr error);
  void conclude();
  [[noreturn]] void rethrow();

  void run_forward(const Action& action, int32_t lane);
  void run_backward(const Action& action, int32_t lane);
  void run_transfer(const Action& action, int32_t lane);
  void run_norm(const Action& action, int32_t lane);
  struct BatchCopy {
    std::vector<std::pair<int, Buffer>> values;  // by edge
    std::shared_ptr<void> there;                 // the point at which they are on the device
  };
  BatchCopy copy_batch(int micro, int32_t lane);
  void load_batch(int micro, int32_t lane);
  void load_next(int32_t lane);
  void bind_ports(int block,
                  int micro,
                  bool backward,
                  std::vector<TensorView>& inputs,
                  std::vector<TensorView>& outputs,
                  std::vector<TensorView>& parameters);
  void make_graphs();
  // A block's operations on `bindings`, one by one or as a graph.
  void issue(const Action& action,
             const TapeBindings& bindings,
             const std::function<void()>& operations);
  void record(const Action& action, SpanKind kind, StringId name, int32_t lane, int64_t start_ns);
  void record_collective(const Action& action,
                         SpanKind kind,
                         const char* name,
                         Communicator& comm,
                         DType dtype,
                         const CallTraffic& traffic,
                         int32_t lane,
                         int64_t start_ns);
  class Operations;
  GpuWork gpu_work(const Action& action, int32_t lane) const;
  void sample_memory();

  const Graph& graph_;
  const Strategy& strategy_;
  const Schedule& schedule_;
  ShardStore& store_;
  LaneCommunicators& comms_;
  const Execution& execution_;
  MemoryLedger& ledger_;
  Recorder* recorder_;
  GpuTrace* gpu_trace_ = nullptr;
  bool watched_ = false;
  bool training_;
  Activations activations_;
  Buffer scratch_;
  std::unique_ptr<GraphCache> graphs_;  // null: everything is issued operation by operation
  std::unique_ptr<Names> names_;

  std::mutex mutex_;
  std::condition_variable compute_wake_;
  const Action* awaited_ = nullptr;  // what the compute lane sleeps before
  std::vector<char> done_;
  int gate_ = 0;  // actions below it may run
  bool stop_ = false;
  std::exception_ptr error_;
  std::vector<std::unique_ptr<LaneThread>> lanes_;
  std::vector<int> compute_actions_;
  size_t next_compute_ = 0;
  int32_t compute_lane_ = -1;

  StepInput input_;
  StepOutput output_;
  int64_t begin_ns_ = 0;
  std::shared_ptr<void> begin_point_;
  std::vector<bool> batch_loaded_;
  BatchCopy next_;  // the first of step next_of_
  int64_t next_of_ = -1;
};

}  // namespace vitrine

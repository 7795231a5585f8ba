// Replays a block's work as a graph: what the graph depends on.
#include <functional>

#include "ops/gpu/precision.h"
#include "run/runner.h"

namespace vitrine {
namespace {

void add(std::span<const TensorView> views, GraphKey& key) {
  for (const TensorView& view : views) key.add(view.data);
}

void add(std::span<const GradView> gradients, GraphKey& key) {
  for (const GradView& gradient : gradients) {
    key.add(gradient.view.data);
    key.add(uint64_t{gradient.accumulate});
  }
}

// Operations are given a tape's attributes and these addresses, and nothing else that changes: so
// neither step nor micro-batch nor a scale is in it. The block's number stands for tape and shapes.
// The process's switches choose kernels; and each thread has its own choices of kernels, made when
// it calls for the first time.
GraphKey key_of(const TapeBindings& b) {
  GraphKey key;
  add(b.inputs, key);
  add(b.outputs, key);
  add(b.parameters, key);
  add(b.doutputs, key);
  add(b.dinputs, key);
  add(b.dparameters, key);
  key.add(b.saved);
  key.add(b.scratch);
  key.add(b.device->lane_scratch());
  key.add(uint64_t{b.forward_only});
  key.add(uint64_t{gpu::tf32()});
  key.add(uint64_t{gpu::deterministic()});
  static thread_local char this_thread;
  key.add(&this_thread);
  return key;
}

}  // namespace

void Runner::make_graphs() {
  const Graphs wanted = execution_.graphs;
  if (wanted == Graphs::kOff) return;
  // Making a graph may wait for the device, which must not wait for another rank's host: stages of
  // a pipeline and NCCL's collectives on several lanes do, the copy engines do not.
  if (strategy_.mesh.pipeline > 1) return;
  if (!execution_.device->is_host() && !comms_.alone() && !comms_.shares()) return;
  graphs_ = std::make_unique<GraphCache>(
      *execution_.device, wanted == Graphs::kAuto, strategy_.accumulation);
}

// While somebody looks on, each operation is issued by itself, so that kernels belong to it.
void Runner::issue(const Action& action,
                   const TapeBindings& bindings,
                   const std::function<void()>& operations) {
  const bool watched = watched_ || gpu_trace_ || (recorder_ && recorder_->recording());
  if (!graphs_ || watched) return operations();
  const int backward = action.kind == ActionKind::kBackward ? 1 : 0;
  graphs_->run(2 * action.block + backward, key_of(bindings), operations);
}

}  // namespace vitrine

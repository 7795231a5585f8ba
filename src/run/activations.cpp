// Edge and activation memory of the micro-batches in flight.
#include "run/activations.h"

#include <cstring>

#include "core/error.h"

namespace vitrine {

bool backward_keeps_input(const Tape& tape, int port, bool recompute) {
  return tape.needs_backward() && tape.backward_reads_input(port, recompute);
}

bool backward_keeps_output(const Tape& tape, int port, bool recompute) {
  if (!tape.needs_backward()) return false;
  if (recompute) return true;  // a node that is run again may write its port again
  for (size_t s = 0; s < tape.slots().size(); ++s) {
    if (tape.slots()[s].output == port)
      return tape.backward_reads_input(static_cast<int>(s), false);
  }
  return false;
}

Activations::Activations(const Graph& graph,
                         const std::vector<int>& run,
                         bool recompute,
                         bool training,
                         MemoryLedger& ledger)
    : graph_(graph),
      recompute_(recompute),
      training_(training),
      ledger_(ledger),
      local_(graph.blocks.size(), false),
      held_(graph.edges.size(), false) {
  for (const int block : run) local_[static_cast<size_t>(block)] = true;
  for (size_t e = 0; e < graph.edges.size(); ++e)
    readers_.push_back(readers_of(static_cast<int>(e)));
}

// Local forward uses, local backward uses, the producer's backward, and one a stage that it is sent
// to.
int Activations::readers_of(int e) const {
  const Edge& edge = graph_.edges[static_cast<size_t>(e)];
  int count = 0;
  for (size_t b = 0; b < graph_.blocks.size(); ++b) {
    if (!local_[b]) continue;
    const GraphBlock& block = graph_.blocks[b];
    for (size_t port = 0; port < block.inputs.size(); ++port) {
      if (block.inputs[port] != e) continue;
      ++count;
      if (training_ && backward_keeps_input(*block.tape, static_cast<int>(port), recompute_))
        ++count;
    }
    for (size_t port = 0; port < block.outputs.size(); ++port) {
      if (block.outputs[port] != e) continue;
      if (training_ && backward_keeps_output(*block.tape, static_cast<int>(port), recompute_))
        ++count;
    }
  }
  if (edge.producer >= 0 && local_[static_cast<size_t>(edge.producer)]) {
    for (const int consumer : edge.consumers) {
      const bool left_out = training_ && !graph_.blocks[static_cast<size_t>(consumer)].feeds_loss;
      // Of another stage: sends are released one by one; one a consumer is the most there can be.
      if (!local_[static_cast<size_t>(consumer)] && !left_out) ++count;
    }
  }
  return count;
}

TensorView Activations::write_value(int e, int micro) {
  const Edge& edge = graph_.edges[static_cast<size_t>(e)];
  const std::lock_guard lock(mutex_);
  Held& held = values_[{e, micro}];
  if (!held.buffer) {
    held.buffer = Buffer(
        ledger_, MemoryCategory::kActivations, edge.name, static_cast<size_t>(edge.type.bytes()));
    held.readers = readers_[static_cast<size_t>(e)];
  }
  return {held.buffer.data(), edge.type.shape, edge.type.dtype};
}

TensorView Activations::value(int e, int micro) const {
  const Edge& edge = graph_.edges[static_cast<size_t>(e)];
  const std::lock_guard lock(mutex_);
  const auto it = values_.find({e, micro});
  return {
      it == values_.end() ? nullptr : it->second.buffer.data(), edge.type.shape, edge.type.dtype};
}

bool Activations::has_value(int e, int micro) const {
  const std::lock_guard lock(mutex_);
  return values_.count({e, micro}) != 0;
}

void Activations::set_batch(int e, int micro, const TensorView& tensor) {
  const Edge& edge = graph_.edges[static_cast<size_t>(e)];
  if (!(edge.type.shape == tensor.shape)) {
    throw ShapeError(edge.name + ": the model was built for " + edge.type.shape.str() +
                     ", the batch is " + tensor.shape.str());
  }
  if (readers_[static_cast<size_t>(e)] == 0 && !held_[static_cast<size_t>(e)]) return;
  const TensorView target = write_value(e, micro);
  if (target.dtype == tensor.dtype) {
    std::memcpy(target.data, tensor.data, target.bytes());
  } else {
    convert(target.dtype, target.data, tensor.dtype, tensor.data, target.elements());
  }
}

void Activations::done_with_value(int e, int micro) {
  const std::lock_guard lock(mutex_);
  const auto it = values_.find({e, micro});
  if (it == values_.end()) return;
  if (--it->second.readers <= 0 && !held_[static_cast<size_t>(e)]) values_.erase(it);
}

void Activations::drop_unread(int e, int micro) {
  const auto at = static_cast<size_t>(e);
  if (readers_[at] > 0 || held_[at]) return;
  const std::lock_guard lock(mutex_);
  values_.erase({e, micro});
}

GradView Activations::gradient_target(int e, int micro) {
  const Edge& edge = graph_.edges[static_cast<size_t>(e)];
  const std::lock_guard lock(mutex_);
  Buffer& buffer = gradients_[{e, micro}];
  const bool first = !buffer;
  if (first) {
    buffer = Buffer(ledger_,
                    MemoryCategory::kActivations,
                    "grad of " + edge.name,
                    static_cast<size_t>(edge.type.bytes()));
  }
  return {{buffer.data(), edge.type.shape, edge.type.dtype}, !first};
}

TensorView Activations::gradient(int e, int micro) const {
  const Edge& edge = graph_.edges[static_cast<size_t>(e)];
  const std::lock_guard lock(mutex_);
  const auto it = gradients_.find({e, micro});
  if (it == gradients_.end()) return {};
  return {it->second.data(), edge.type.shape, edge.type.dtype};
}

void Activations::add_gradient(int e, int micro, const TensorView& incoming) {
  const GradView target = gradient_target(e, micro);
  if (!target.accumulate) {
    std::memcpy(target.view.data, incoming.data, incoming.bytes());
    return;
  }
  const int64_t count = incoming.elements();
  std::vector<float> a(static_cast<size_t>(count)), b(static_cast<size_t>(count));
  convert(DType::kF32, a.data(), incoming.dtype, target.view.data, count);
  convert(DType::kF32, b.data(), incoming.dtype, incoming.data, count);
  for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  convert(incoming.dtype, target.view.data, DType::kF32, a.data(), count);
}

void Activations::free_gradient(int e, int micro) {
  const std::lock_guard lock(mutex_);
  gradients_.erase({e, micro});
}

void* Activations::allocate_saved(int block, int micro) {
  const GraphBlock& graph_block = graph_.blocks[static_cast<size_t>(block)];
  const std::lock_guard lock(mutex_);
  Buffer& buffer = saved_[{block, micro}];
  if (!buffer) {
    buffer = Buffer(ledger_,
                    MemoryCategory::kActivations,
                    graph_block.name,
                    static_cast<size_t>(graph_block.tape->layout().saved_bytes));
  }
  return buffer.data();
}

void* Activations::saved(int block, int micro) const {
  const std::lock_guard lock(mutex_);
  const auto it = saved_.find({block, micro});
  VITRINE_ASSERT(it != saved_.end());
  return it->second.data();
}

void Activations::free_saved(int block, int micro) {
  const std::lock_guard lock(mutex_);
  saved_.erase({block, micro});
}

void Activations::clear() {
  const std::lock_guard lock(mutex_);
  values_.clear();
  gradients_.clear();
  saved_.clear();
}

}  // namespace vitrine

// Edge and activation memory of the micro-batches in flight.
#include "run/activations.h"

#include "core/device.h"
#include "core/error.h"

namespace vitrine {

Activations::Activations(const Graph& graph,
                         const std::vector<int>& run,
                         bool recompute,
                         bool training,
                         MemoryLedger& ledger)
    : graph_(graph),
      ledger_(ledger),
      held_(graph.edges.size(), false),
      readers_(edge_readers(graph, run, recompute, training)) {}

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

Buffer Activations::copy_batch(int e, const TensorView& tensor) const {
  const Edge& edge = graph_.edges[static_cast<size_t>(e)];
  if (!(edge.type.shape == tensor.shape)) {
    throw ShapeError(edge.name + ": the model was built for " + edge.type.shape.str() +
                     ", the batch is " + tensor.shape.str());
  }
  if (readers_[static_cast<size_t>(e)] == 0 && !held_[static_cast<size_t>(e)]) return {};
  const auto bytes = static_cast<size_t>(edge.type.bytes());
  Buffer copy(ledger_, MemoryCategory::kActivations, edge.name, bytes);
  Device& device = ledger_.device();
  const DType dtype = edge.type.dtype;
  if (dtype == tensor.dtype) {
    device.upload(copy.data(), tensor.data, bytes);
  } else if (device.is_host()) {
    convert(dtype, copy.data(), tensor.dtype, tensor.data, tensor.elements());
  } else {
    const Buffer given(ledger_, MemoryCategory::kStaging, edge.name, tensor.bytes());
    device.upload(given.data(), tensor.data, tensor.bytes());
    device.convert(dtype, copy.data(), tensor.dtype, given.data(), tensor.elements());
  }
  return copy;
}

void Activations::set_batch(int e, int micro, Buffer copy) {
  const std::lock_guard lock(mutex_);
  Held& held = values_[{e, micro}];
  held.buffer = std::move(copy);
  held.readers = readers_[static_cast<size_t>(e)];
}

void Activations::done_with_value(int e, int micro) {
  const std::lock_guard lock(mutex_);
  const auto it = values_.find({e, micro});
  if (it == values_.end()) return;
  Held& held = it->second;
  if (--held.readers > 0 || held_[static_cast<size_t>(e)]) {
    // Another lane may free it, whose work is in no order with what reads it here.
    held.reads.push_back(ledger_.device().point());
    return;
  }
  for (const std::shared_ptr<void>& read : held.reads) ledger_.device().after(read);
  values_.erase(it);
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
  if (target.accumulate) {
    ledger_.device().add(incoming.dtype, target.view.data, incoming.data, incoming.elements());
  } else {
    ledger_.device().copy(target.view.data, incoming.data, incoming.bytes());
  }
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

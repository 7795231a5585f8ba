// Values and gradients that flow along a graph's edges, and what tapes keep, for the micro-batches
// in flight.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "core/buffer.h"
#include "schedule/edge_uses.h"
#include "schedule/graph.h"

namespace vitrine {

// Every buffer lives exactly as long as something will read it: counts of readers are taken from
// the graph. Used from the compute lane and, for edges that cross stages, from the send and receive
// lanes in the order that the schedule sets.
class Activations {
 public:
  // `run` lists the blocks whose forward this rank runs; `training` decides whether backward reads
  // count.
  Activations(const Graph& graph,
              const std::vector<int>& run,
              bool recompute,
              bool training,
              MemoryLedger& ledger);

  // The value of an edge: allocated by the first write_value of a micro-batch.
  TensorView write_value(int edge, int micro);
  TensorView value(int edge, int micro) const;
  // A copy of a batch tensor for this edge, converted to its dtype, made in the calling thread's
  // lane; empty where nobody reads it. Throws ShapeError.
  Buffer copy_batch(int edge, const TensorView& tensor) const;
  void set_batch(int edge, int micro, Buffer copy);
  // One reader less; frees at zero. Results are held until clear().
  void done_with_value(int edge, int micro);
  // Frees a value just written that nobody here reads.
  void drop_unread(int edge, int micro);

  // The gradient of an edge: the first contribution of a micro-batch overwrites, later ones add.
  GradView gradient_target(int edge, int micro);
  // Null when nothing contributed.
  TensorView gradient(int edge, int micro) const;
  // A gradient that comes from another stage, as one more contribution.
  void add_gradient(int edge, int micro, const TensorView& incoming);
  void free_gradient(int edge, int micro);

  void* allocate_saved(int block, int micro);
  void* saved(int block, int micro) const;
  void free_saved(int block, int micro);

  // Marks edges whose values stay until clear().
  void hold(int edge) { held_[static_cast<size_t>(edge)] = true; }
  // Frees everything (the end of a step, or after an error).
  void clear();

 private:
  using Key = std::pair<int, int>;
  struct Held {
    Buffer buffer;
    int readers = 0;
    std::vector<std::shared_ptr<void>> reads;  // points of a device's lanes, done with it
  };

  const Graph& graph_;
  MemoryLedger& ledger_;
  std::vector<bool> held_;
  std::vector<int> readers_;
  std::map<Key, Held> values_;
  std::map<Key, Buffer> gradients_, saved_;
  mutable std::mutex mutex_;  // the maps; contents are ordered by the schedule
};

}  // namespace vitrine

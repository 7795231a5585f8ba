// The tape of one block: its coarse operations, recorded once a block kind and shape, laid out,
// replayed.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/device.h"
#include "ops/op.h"

namespace vitrine {

// A value on the tape being recorded; cheap to copy. Default-made = absent optional input.
struct Value {
  int slot = -1;
  explicit operator bool() const { return slot >= 0; }
};

// A port or parameter as the tape sees it.
struct PortType {
  std::string name;
  TensorType type;
  bool requires_grad = false;
};

struct TapeNode {
  const OpDef* op = nullptr;
  Attrs attrs;
  std::vector<int> in;     // slots; -1 = absent
  std::vector<int> out;    // slots
  std::vector<int> saved;  // slots
  int64_t forward_workspace = 0, backward_workspace = 0;
  bool needs_backward = false;
};

enum class SlotKind : uint8_t { kInput, kParameter, kValue, kSaved };

struct TapeSlot {
  SlotKind kind = SlotKind::kValue;
  TensorType type;
  int index = -1;     // of the input or parameter
  int output = -1;    // index of the output port it is, or -1
  int producer = -1;  // node
  bool requires_grad = false;
};

// Where a slot lies in a region; -1 = not in that region.
struct TapeLayout {
  std::vector<int64_t> saved_offset;     // kept from forward to backward, in the activation slot
  std::vector<int64_t> forward_offset;   // in the forward scratch
  std::vector<int64_t> gradient_offset;  // gradients of values, in the backward scratch
  std::vector<int64_t> forward_workspace, backward_workspace;  // a node
  int64_t saved_bytes = 0, forward_scratch_bytes = 0, backward_scratch_bytes = 0;
};

// Memory of one replay. Views of inputs, outputs and parameters are whole; offsets of everything
// else are relative to `saved` and `scratch` (64-byte aligned).
struct TapeBindings {
  std::span<const TensorView> inputs, outputs, parameters;
  void* saved = nullptr;
  void* scratch = nullptr;  // max(forward, backward) scratch bytes
  Device* device = &host_device();
  // No backward reads what this forward leaves in `saved`.
  bool forward_only = false;
  // Backward only. `doutputs` may be null one by one (no gradient comes in); they are overwritten.
  std::span<const TensorView> doutputs;
  std::span<const GradView> dinputs, dparameters;  // null = not wanted
};

// Told of every operation that a replay issues; of two that a backend runs as one, the first issued
// has all the time. `backward` nodes come in reverse order.
class OpObserver {
 public:
  virtual ~OpObserver() = default;
  virtual void begins(const TapeNode&, bool /*backward*/) {}
  virtual void ended(const TapeNode& node, bool backward, int64_t start_ns, int64_t end_ns) = 0;
};

class Tape {
 public:
  const std::vector<TapeNode>& nodes() const { return nodes_; }
  const std::vector<TapeSlot>& slots() const { return slots_; }
  const std::vector<PortType>& inputs() const { return inputs_; }
  const std::vector<PortType>& parameters() const { return parameters_; }
  const std::vector<PortType>& outputs() const { return outputs_; }
  const TapeLayout& layout() const { return layout_; }

  // Whether backward reads the value of parameter (input) `i`; with `recompute` the forward of what
  // backward needs is run again and counts too.
  bool backward_reads_parameter(int i, bool recompute) const;
  bool backward_reads_input(int i, bool recompute) const;
  bool needs_backward() const;
  // Whether recompute() runs node `n`.
  bool runs_again(size_t n) const { return recompute_nodes_[n]; }
  // The shapes and dtypes that a node's operation was given.
  std::vector<TensorType> input_types(const TapeNode& node) const;
  // The same tape for a backend that brings its own scratch: none is laid out for operations.
  Tape without_workspaces() const;
  // The same operations on the same slots: replaying either gives the same.
  bool same_operations(const Tape& other) const;

  void forward(const Backend& backend, const TapeBindings& bindings, OpObserver* observer) const;
  // Runs again only what backward reads and no port still holds; fills bindings.saved.
  void recompute(const Backend& backend, const TapeBindings& bindings, OpObserver* observer) const;
  void backward(const Backend& backend, const TapeBindings& bindings, OpObserver* observer) const;

  // Sums over the nodes.
  Cost forward_cost() const;
  Cost backward_cost() const;
  Cost recompute_cost() const;

 private:
  friend class TapeBuilder;
  void plan();
  bool read_in_backward(int slot) const;
  int parameter_slot(int parameter) const;  // -1: there is none
  struct NodeCall;
  class Backward;
  size_t run_node(
      size_t node, bool next_too, const Backend&, const TapeBindings&, OpObserver*) const;
  void bind_forward(size_t node, const TapeBindings& bindings, NodeCall& bound) const;
  bool forward_pair(size_t node, const Backend& backend, const TapeBindings& bindings) const;
  // How the backend runs nodes `node` and node + 1 at once; null when it can't.
  const PairedOps* pair_at(size_t node, const Backend& backend) const;
  TensorView view(int slot, const TapeBindings& bindings) const;

  std::vector<TapeNode> nodes_;
  std::vector<TapeSlot> slots_;
  std::vector<PortType> inputs_, parameters_, outputs_;
  std::vector<bool> recompute_nodes_;
  TapeLayout layout_;
};

// Records a block's forward. Ports and parameters are given beforehand, or parameters declared
// where they are used first; the block takes them by name.
class TapeBuilder {
 public:
  // `block` names the block in errors.
  TapeBuilder(std::string block, std::vector<PortType> inputs, std::vector<PortType> parameters);

  Value input(std::string_view port) const;
  bool has_input(std::string_view port) const;
  Value parameter(std::string_view name) const;
  // A further parameter while recording, behind those that were given.
  Value declare_parameter(PortType parameter);
  bool has_parameter(std::string_view name) const;
  const TensorType& type(Value value) const;
  const Shape& shape(Value value) const { return type(value).shape; }

  // Runs the operation's infer; throws ShapeError that names block and operation.
  std::vector<Value> call(std::string_view op, const Attrs& attrs, const std::vector<Value>& in);
  // For operations with one output.
  Value apply(std::string_view op, const Attrs& attrs, const std::vector<Value>& in) {
    return call(op, attrs, in).front();
  }
  // Names a computed value as the block's output port. Inputs cannot be passed through: connect
  // them.
  void output(const std::string& port, Value value);

  // Ends the recording and lays the tape out.
  Tape finish();

 private:
  std::string block_;
  Tape tape_;
};

// Offsets of items that live over [first, last] (inclusive), so that items alive together never
// overlap; each offset is a multiple of 64. Returns the bytes needed. First fit, large items first.
struct LifetimeItem {
  int64_t bytes = 0;
  int first = 0, last = 0;
  int64_t* offset = nullptr;
};
int64_t plan_lifetimes(std::vector<LifetimeItem> items);

}  // namespace vitrine

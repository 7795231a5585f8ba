// Replay of a tape, forward and backward, on given memory.
#include <array>
#include <utility>

#include "core/clock.h"
#include "core/device.h"
#include "core/error.h"
#include "tape/tape.h"

namespace vitrine {
namespace {

constexpr size_t kMaxOperands = 8;
using Views = std::array<TensorView, kMaxOperands>;

std::byte* at(void* base, int64_t offset) {
  return offset < 0 ? nullptr : static_cast<std::byte*>(base) + offset;
}

// Tells an observer of one operation, and of the next that ran with it, which takes no time of its
// own.
class Watch {
 public:
  Watch(OpObserver* observer, const TapeNode& node, bool backward)
      : observer_(observer), node_(&node), backward_(backward) {
    begin();
  }
  ~Watch() { end(); }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  void next(const TapeNode& node) {
    end();
    node_ = &node;
    begin();
  }

 private:
  void begin() {
    if (!observer_) return;
    observer_->begins(*node_, backward_);
    start_ = now_ns();
  }
  void end() {
    if (observer_) observer_->ended(*node_, backward_, start_, now_ns());
  }

  OpObserver* observer_;
  const TapeNode* node_;
  bool backward_;
  int64_t start_ = 0;
};

bool overlap(const TensorView& a, const TensorView& b) {
  const auto *first = a.as<const char>(), *second = b.as<const char>();
  return a && b && first < second + b.bytes() && second < first + a.bytes();
}

}  // namespace

// One node's operands as its operation sees them.
struct Tape::NodeCall {
  Views in, out, saved, dout;
  std::array<GradView, kMaxOperands> din;
  OpCall call;
  size_t inputs = 0, outputs = 0;

  explicit NodeCall(const TapeNode& node) : inputs(node.in.size()), outputs(node.out.size()) {
    VITRINE_ASSERT(inputs <= kMaxOperands && outputs <= kMaxOperands);
    call.attrs = &node.attrs;
    call.in = {in.data(), inputs};
    call.out = {out.data(), outputs};
    call.saved = {saved.data(), node.saved.size()};
  }
  NodeCall(const NodeCall&) = delete;
  NodeCall& operator=(const NodeCall&) = delete;

  std::span<const TensorView> douts() const { return {dout.data(), outputs}; }
  std::span<const GradView> dins() const { return {din.data(), inputs}; }
};

TensorView Tape::view(int slot_index, const TapeBindings& bindings) const {
  if (slot_index < 0) return {};
  const auto s = static_cast<size_t>(slot_index);
  const TapeSlot& slot = slots_[s];
  if (slot.kind == SlotKind::kInput) return bindings.inputs[static_cast<size_t>(slot.index)];
  if (slot.kind == SlotKind::kParameter)
    return bindings.parameters[static_cast<size_t>(slot.index)];
  if (slot.output >= 0) return bindings.outputs[static_cast<size_t>(slot.output)];
  void* data = layout_.saved_offset[s] >= 0 ? at(bindings.saved, layout_.saved_offset[s])
                                            : at(bindings.scratch, layout_.forward_offset[s]);
  return {data, slot.type.shape, slot.type.dtype};
}

void Tape::bind_forward(size_t n, const TapeBindings& bindings, NodeCall& bound) const {
  const TapeNode& node = nodes_[n];
  for (size_t i = 0; i < node.in.size(); ++i) bound.in[i] = view(node.in[i], bindings);
  for (size_t i = 0; i < node.out.size(); ++i) bound.out[i] = view(node.out[i], bindings);
  for (size_t i = 0; i < node.saved.size(); ++i) {
    const bool left_out = bindings.forward_only && (node.op->optional_saved >> i & 1u);
    if (!left_out) bound.saved[i] = view(node.saved[i], bindings);
  }
  bound.call.workspace = at(bindings.scratch, layout_.forward_workspace[n]);
}

const PairedOps* Tape::pair_at(size_t n, const Backend& backend) const {
  if (n + 1 >= nodes_.size()) return nullptr;
  const TapeNode &first = nodes_[n], &second = nodes_[n + 1];
  if (second.in.empty() || second.in[0] != first.out[0]) return nullptr;
  return backend.pair(first.op->name, second.op->name);
}

// The second's results are written while the first's operands are read, which the layout of a tape
// does not keep apart.
bool Tape::forward_pair(size_t n, const Backend& backend, const TapeBindings& bindings) const {
  const PairedOps* pair = pair_at(n, backend);
  if (!pair) return false;
  NodeCall first(nodes_[n]), second(nodes_[n + 1]);
  bind_forward(n, bindings, first);
  bind_forward(n + 1, bindings, second);
  for (const TensorView& read : first.call.in) {
    for (const TensorView& written : second.call.out) {
      if (overlap(read, written)) return false;
    }
  }
  return pair->forward(first.call, second.call);
}

// Runs node `n`, and the next with it where `next_too` and the backend can; returns how many.
size_t Tape::run_node(size_t n,
                      bool next_too,
                      const Backend& backend,
                      const TapeBindings& bindings,
                      OpObserver* observer) const {
  Watch watch(observer, nodes_[n], false);
  if (next_too && forward_pair(n, backend, bindings)) {
    watch.next(nodes_[n + 1]);
    return 2;
  }
  NodeCall bound(nodes_[n]);
  bind_forward(n, bindings, bound);
  backend.kernels(nodes_[n].op->name).forward(bound.call);
  return 1;
}

void Tape::forward(const Backend& backend,
                   const TapeBindings& bindings,
                   OpObserver* observer) const {
  for (size_t n = 0; n < nodes_.size();) n += run_node(n, true, backend, bindings, observer);
}

void Tape::recompute(const Backend& backend,
                     const TapeBindings& bindings,
                     OpObserver* observer) const {
  for (size_t n = 0; n < nodes_.size();) {
    const bool next_too = n + 1 < nodes_.size() && recompute_nodes_[n + 1];
    n += recompute_nodes_[n] ? run_node(n, next_too, backend, bindings, observer) : 1;
  }
}

// Replays backward: which gradients hold something already decides whether the next contribution is
// added.
class Tape::Backward {
 public:
  Backward(const Tape& tape, const Backend& backend, const TapeBindings& bindings)
      : tape_(tape), backend_(backend), bindings_(bindings), written_(tape.slots_.size(), false) {}

  bool written(size_t slot) const { return written_[slot]; }

  // Runs node `n`, and the one before it where the backend can; returns how many.
  size_t run(size_t n, OpObserver* observer) {
    const TapeNode& node = tape_.nodes_[n];
    NodeCall bound(node);
    if (!node.needs_backward || !bind(n, bound)) return 1;
    Watch watch(observer, node, true);
    if (n > 0 && run_pair(n - 1, bound)) {
      mark(node);
      mark(tape_.nodes_[n - 1]);
      watch.next(tape_.nodes_[n - 1]);
      return 2;
    }
    mark(node);
    backend_.kernels(node.op->name).backward(bound.call, bound.douts(), bound.dins());
    return 1;
  }

 private:
  bool external(int slot) const {
    const int output = tape_.slots_[static_cast<size_t>(slot)].output;
    return output >= 0 && bindings_.doutputs[static_cast<size_t>(output)];
  }

  GradView gradient(int slot_index) const {
    const auto s = static_cast<size_t>(slot_index);
    const TapeSlot& slot = tape_.slots_[s];
    const auto index = static_cast<size_t>(slot.index);
    if (!slot.requires_grad) return {};
    if (slot.kind == SlotKind::kInput || slot.kind == SlotKind::kParameter) {
      const GradView& given =
          slot.kind == SlotKind::kInput ? bindings_.dinputs[index] : bindings_.dparameters[index];
      return {given.view, given.accumulate || written_[s]};
    }
    if (external(slot_index)) {
      return {bindings_.doutputs[static_cast<size_t>(slot.output)], true};
    }
    return {
        {at(bindings_.scratch, tape_.layout_.gradient_offset[s]), slot.type.shape, slot.type.dtype},
        written_[s]};
  }

  // Operands of node `n`; false when no gradient reaches it.
  bool bind(size_t n, NodeCall& bound) const {
    const TapeNode& node = tape_.nodes_[n];
    bool any_gradient = false;
    for (size_t i = 0; i < node.out.size(); ++i) {
      if (!external(node.out[i]) && !written_[static_cast<size_t>(node.out[i])]) continue;
      bound.dout[i] = gradient(node.out[i]).view;
      any_gradient = true;
    }
    for (size_t i = 0; i < node.in.size(); ++i) {
      if (node.op->backward_reads_in >> i & 1u) bound.in[i] = tape_.view(node.in[i], bindings_);
    }
    for (size_t i = 0; i < node.out.size(); ++i) {
      if (node.op->backward_reads_out >> i & 1u) bound.out[i] = tape_.view(node.out[i], bindings_);
    }
    for (size_t i = 0; i < node.saved.size(); ++i)
      bound.saved[i] = tape_.view(node.saved[i], bindings_);
    for (size_t i = 0; i < node.in.size(); ++i) {
      if (!differentiable(node, i)) continue;
      bound.din[i] = gradient(node.in[i]);
      for (size_t j = 0; j < i; ++j) {  // x + x adds twice
        if (node.in[j] == node.in[i] && differentiable(node, j)) bound.din[i].accumulate = true;
      }
    }
    bound.call.workspace = at(bindings_.scratch, tape_.layout_.backward_workspace[n]);
    return any_gradient;
  }

  static bool differentiable(const TapeNode& node, size_t input) {
    return node.in[input] >= 0 && (node.op->differentiable >> input & 1u);
  }
  void mark(const TapeNode& node) {
    for (size_t i = 0; i < node.in.size(); ++i) {
      if (differentiable(node, i)) written_[static_cast<size_t>(node.in[i])] = true;
    }
  }

  // Nodes `n` and n + 1, whose operands are `second`, as one: where the value between has a
  // gradient from the second alone, no gradient is both's, and what the first writes is nothing
  // that the second still reads.
  bool run_pair(size_t n, NodeCall& second) const {
    const PairedOps* pair = tape_.pair_at(n, backend_);
    const TapeNode& node = tape_.nodes_[n];
    if (!pair || !node.needs_backward || node.out.size() != 1) return false;
    if (external(node.out[0]) || written_[static_cast<size_t>(node.out[0])]) return false;
    NodeCall first(node);
    bind(n, first);
    for (size_t i = 0; i < node.in.size(); ++i) {
      const GradView& written = first.din[i];
      for (const TensorView& read : second.douts()) {
        if (overlap(written.view, read)) return false;
      }
      for (const GradView& other : second.dins().subspan(1)) {
        if (overlap(written.view, other.view)) return false;
      }
      for (const TensorView& read : second.call.in) {
        if (overlap(written.view, read)) return false;
      }
    }
    const GradView between = std::exchange(second.din[0], GradView{});
    if (pair->backward(first.call, first.dins(), second.call, second.douts(), second.dins()))
      return true;
    second.din[0] = between;
    return false;
  }

  const Tape& tape_;
  const Backend& backend_;
  const TapeBindings& bindings_;
  std::vector<bool> written_;
};

void Tape::backward(const Backend& backend,
                    const TapeBindings& bindings,
                    OpObserver* observer) const {
  Backward replay(*this, backend, bindings);
  for (size_t n = nodes_.size(); n > 0;) n -= replay.run(n - 1, observer);

  // A wanted gradient that nothing reached is zero.
  for (size_t s = 0; s < slots_.size(); ++s) {
    const TapeSlot& slot = slots_[s];
    if (replay.written(s) || (slot.kind != SlotKind::kInput && slot.kind != SlotKind::kParameter))
      continue;
    if (!slot.requires_grad) continue;
    const GradView given = slot.kind == SlotKind::kInput
                               ? bindings.dinputs[static_cast<size_t>(slot.index)]
                               : bindings.dparameters[static_cast<size_t>(slot.index)];
    if (given && !given.accumulate) bindings.device->zero(given.view.data, given.view.bytes());
  }
}

}  // namespace vitrine

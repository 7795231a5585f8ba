// Replay of a tape, forward and backward, on given memory.
#include <array>

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

}  // namespace

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

void Tape::run_node(size_t n,
                    const Backend& backend,
                    const TapeBindings& bindings,
                    OpObserver* observer) const {
  const TapeNode& node = nodes_[n];
  VITRINE_ASSERT(node.in.size() <= kMaxOperands && node.out.size() <= kMaxOperands);
  Views in, out, saved;
  for (size_t i = 0; i < node.in.size(); ++i) in[i] = view(node.in[i], bindings);
  for (size_t i = 0; i < node.out.size(); ++i) out[i] = view(node.out[i], bindings);
  for (size_t i = 0; i < node.saved.size(); ++i) {
    const bool left_out = bindings.forward_only && (node.op->optional_saved >> i & 1u);
    if (!left_out) saved[i] = view(node.saved[i], bindings);
  }
  OpCall call;
  call.attrs = &node.attrs;
  call.in = {in.data(), node.in.size()};
  call.out = {out.data(), node.out.size()};
  call.saved = {saved.data(), node.saved.size()};
  call.workspace = at(bindings.scratch, layout_.forward_workspace[n]);
  if (observer) observer->begins(node, false);
  const int64_t start = observer ? now_ns() : 0;
  backend.kernels(node.op->name).forward(call);
  if (observer) observer->ended(node, false, start, now_ns());
}

void Tape::forward(const Backend& backend,
                   const TapeBindings& bindings,
                   OpObserver* observer) const {
  for (size_t n = 0; n < nodes_.size(); ++n) run_node(n, backend, bindings, observer);
}

void Tape::recompute(const Backend& backend,
                     const TapeBindings& bindings,
                     OpObserver* observer) const {
  for (size_t n = 0; n < nodes_.size(); ++n) {
    if (recompute_nodes_[n]) run_node(n, backend, bindings, observer);
  }
}

void Tape::backward(const Backend& backend,
                    const TapeBindings& bindings,
                    OpObserver* observer) const {
  // Whether a slot's gradient holds something already, so that the next contribution is added.
  std::vector<bool> written(slots_.size(), false);
  const auto gradient = [&](int slot_index) -> GradView {
    const auto s = static_cast<size_t>(slot_index);
    const TapeSlot& slot = slots_[s];
    const auto index = static_cast<size_t>(slot.index);
    if (!slot.requires_grad) return {};
    if (slot.kind == SlotKind::kInput) {
      const GradView& given = bindings.dinputs[index];
      return {given.view, given.accumulate || written[s]};
    }
    if (slot.kind == SlotKind::kParameter) {
      const GradView& given = bindings.dparameters[index];
      return {given.view, given.accumulate || written[s]};
    }
    if (slot.output >= 0 && bindings.doutputs[static_cast<size_t>(slot.output)]) {
      return {bindings.doutputs[static_cast<size_t>(slot.output)], true};
    }
    return {{at(bindings.scratch, layout_.gradient_offset[s]), slot.type.shape, slot.type.dtype},
            written[s]};
  };

  for (size_t n = nodes_.size(); n-- > 0;) {
    const TapeNode& node = nodes_[n];
    if (!node.needs_backward) continue;
    Views in, out, saved, dout;
    std::array<GradView, kMaxOperands> din;
    bool any_gradient = false;
    for (size_t i = 0; i < node.out.size(); ++i) {
      const auto s = static_cast<size_t>(node.out[i]);
      const bool external =
          slots_[s].output >= 0 && bindings.doutputs[static_cast<size_t>(slots_[s].output)];
      if (external || written[s]) {
        dout[i] = gradient(node.out[i]).view;
        any_gradient = true;
      }
    }
    if (!any_gradient) continue;
    for (size_t i = 0; i < node.in.size(); ++i) {
      if (node.op->backward_reads_in >> i & 1u) in[i] = view(node.in[i], bindings);
    }
    for (size_t i = 0; i < node.out.size(); ++i) {
      if (node.op->backward_reads_out >> i & 1u) out[i] = view(node.out[i], bindings);
    }
    for (size_t i = 0; i < node.saved.size(); ++i) saved[i] = view(node.saved[i], bindings);
    for (size_t i = 0; i < node.in.size(); ++i) {
      const int slot = node.in[i];
      if (slot < 0 || !(node.op->differentiable >> i & 1u)) continue;
      din[i] = gradient(slot);
      written[static_cast<size_t>(slot)] = true;
    }
    OpCall call;
    call.attrs = &node.attrs;
    call.in = {in.data(), node.in.size()};
    call.out = {out.data(), node.out.size()};
    call.saved = {saved.data(), node.saved.size()};
    call.workspace = at(bindings.scratch, layout_.backward_workspace[n]);
    if (observer) observer->begins(node, true);
    const int64_t start = observer ? now_ns() : 0;
    backend.kernels(node.op->name)
        .backward(call, {dout.data(), node.out.size()}, {din.data(), node.in.size()});
    if (observer) observer->ended(node, true, start, now_ns());
  }

  // A wanted gradient that nothing reached is zero.
  for (size_t s = 0; s < slots_.size(); ++s) {
    const TapeSlot& slot = slots_[s];
    if (written[s] || (slot.kind != SlotKind::kInput && slot.kind != SlotKind::kParameter))
      continue;
    if (!slot.requires_grad) continue;
    const GradView given = slot.kind == SlotKind::kInput
                               ? bindings.dinputs[static_cast<size_t>(slot.index)]
                               : bindings.dparameters[static_cast<size_t>(slot.index)];
    if (given && !given.accumulate) bindings.device->zero(given.view.data, given.view.bytes());
  }
}

}  // namespace vitrine

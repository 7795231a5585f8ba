// Layout of a tape: what is kept for backward, and where everything lies.
#include <algorithm>

#include "core/error.h"
#include "tape/tape.h"

namespace vitrine {
namespace {

int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

Cost& operator+=(Cost& sum, const Cost& cost) {
  sum.flops += cost.flops;
  sum.bytes += cost.bytes;
  sum.matmul = sum.matmul || cost.matmul;
  return sum;
}

}  // namespace

int64_t plan_lifetimes(std::vector<LifetimeItem> items) {
  std::stable_sort(
      items.begin(), items.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  std::vector<LifetimeItem> placed;
  int64_t total = 0;
  for (const LifetimeItem& item : items) {
    // Ranges taken by items alive at the same time, by offset; take the first gap that fits.
    std::vector<std::pair<int64_t, int64_t>> taken;
    for (const LifetimeItem& other : placed) {
      if (other.first <= item.last && item.first <= other.last) {
        taken.emplace_back(*other.offset, *other.offset + aligned(other.bytes));
      }
    }
    std::sort(taken.begin(), taken.end());
    int64_t offset = 0;
    for (const auto& [begin, end] : taken) {
      if (offset + aligned(item.bytes) <= begin) break;
      offset = std::max(offset, end);
    }
    *item.offset = offset;
    total = std::max(total, offset + aligned(item.bytes));
    placed.push_back(item);
  }
  return total;
}

bool Tape::read_in_backward(int slot) const {
  for (const TapeNode& node : nodes_) {
    if (!node.needs_backward) continue;
    for (size_t i = 0; i < node.in.size(); ++i) {
      if (node.in[i] == slot && (node.op->backward_reads_in >> i & 1u)) return true;
    }
    for (size_t i = 0; i < node.out.size(); ++i) {
      if (node.out[i] == slot && (node.op->backward_reads_out >> i & 1u)) return true;
    }
    if (std::find(node.saved.begin(), node.saved.end(), slot) != node.saved.end()) return true;
  }
  return false;
}

void Tape::plan() {
  const size_t slot_count = slots_.size(), node_count = nodes_.size();
  layout_.saved_offset.assign(slot_count, -1);
  layout_.forward_offset.assign(slot_count, -1);
  layout_.gradient_offset.assign(slot_count, -1);
  layout_.forward_workspace.assign(node_count, -1);
  layout_.backward_workspace.assign(node_count, -1);

  std::vector<int> last_read(slot_count, -1);
  std::vector<int> first_gradient(slot_count,
                                  -1);  // reverse time at which a gradient is first written
  for (size_t n = 0; n < node_count; ++n) {
    for (const int slot : nodes_[n].in) {
      if (slot < 0) continue;
      last_read[static_cast<size_t>(slot)] = static_cast<int>(n);
      if (nodes_[n].needs_backward) {  // the last such node is the first in backward
        first_gradient[static_cast<size_t>(slot)] = static_cast<int>(node_count - 1 - n);
      }
    }
  }

  std::vector<LifetimeItem> forward, backward;
  for (size_t s = 0; s < slot_count; ++s) {
    const TapeSlot& slot = slots_[s];
    if (slot.kind == SlotKind::kInput || slot.kind == SlotKind::kParameter) continue;
    const int produced = slot.producer;
    if (slot.output < 0) {
      if (read_in_backward(static_cast<int>(s))) {
        layout_.saved_offset[s] = layout_.saved_bytes;
        layout_.saved_bytes += aligned(slot.type.bytes());
      } else {
        forward.push_back({slot.type.bytes(),
                           produced,
                           std::max(produced, last_read[s]),
                           &layout_.forward_offset[s]});
      }
    }
    if (slot.kind == SlotKind::kValue && slot.requires_grad) {
      const int consumed = static_cast<int>(node_count) - 1 - produced;
      const int first = first_gradient[s] < 0 ? consumed : first_gradient[s];
      // Outputs with an incoming gradient use that buffer instead; without one they need a place
      // here.
      backward.push_back({slot.type.bytes(), first, consumed, &layout_.gradient_offset[s]});
    }
  }
  for (size_t n = 0; n < node_count; ++n) {
    const int at = static_cast<int>(n), back = static_cast<int>(node_count - 1 - n);
    if (nodes_[n].forward_workspace > 0) {
      forward.push_back({nodes_[n].forward_workspace, at, at, &layout_.forward_workspace[n]});
    }
    if (nodes_[n].needs_backward && nodes_[n].backward_workspace > 0) {
      backward.push_back(
          {nodes_[n].backward_workspace, back, back, &layout_.backward_workspace[n]});
    }
  }
  layout_.forward_scratch_bytes = plan_lifetimes(forward);
  layout_.backward_scratch_bytes = plan_lifetimes(backward);

  // What recompute has to run: producers of what backward reads and no port holds, and their
  // producers.
  recompute_nodes_.assign(node_count, false);
  for (size_t n = node_count; n-- > 0;) {
    bool wanted = false;
    for (const auto* list : {&nodes_[n].out, &nodes_[n].saved}) {
      for (const int slot : *list) {
        const bool in_port = slots_[static_cast<size_t>(slot)].output >= 0;
        wanted = wanted || (!in_port && read_in_backward(slot));
        for (size_t later = n + 1; later < node_count && !in_port; ++later) {
          const auto& in = nodes_[later].in;
          wanted = wanted ||
                   (recompute_nodes_[later] && std::find(in.begin(), in.end(), slot) != in.end());
        }
      }
    }
    recompute_nodes_[n] = wanted;
  }
}

Tape Tape::without_workspaces() const {
  Tape tape = *this;
  for (TapeNode& node : tape.nodes_) node.forward_workspace = node.backward_workspace = 0;
  tape.layout_ = {};
  tape.plan();
  return tape;
}

bool Tape::needs_backward() const {
  return std::any_of(nodes_.begin(), nodes_.end(), [](const auto& n) { return n.needs_backward; });
}

bool Tape::same_operations(const Tape& other) const {
  const auto same_node = [](const TapeNode& a, const TapeNode& b) {
    return a.op == b.op && a.attrs == b.attrs && a.in == b.in && a.out == b.out;
  };
  const auto same_slot = [](const TapeSlot& a, const TapeSlot& b) {
    return a.kind == b.kind && a.type == b.type && a.index == b.index && a.output == b.output;
  };
  const auto same_port = [](const PortType& a, const PortType& b) { return a.name == b.name; };
  return std::equal(
             nodes_.begin(), nodes_.end(), other.nodes_.begin(), other.nodes_.end(), same_node) &&
         std::equal(
             slots_.begin(), slots_.end(), other.slots_.begin(), other.slots_.end(), same_slot) &&
         std::equal(outputs_.begin(),
                    outputs_.end(),
                    other.outputs_.begin(),
                    other.outputs_.end(),
                    same_port);
}

bool Tape::backward_reads_parameter(int i, bool recompute) const {
  return backward_reads_input(parameter_slot(i), recompute);
}

bool Tape::backward_reads_input(int slot, bool recompute) const {
  if (read_in_backward(slot)) return true;
  if (!recompute) return false;
  for (size_t n = 0; n < nodes_.size(); ++n) {
    const auto& in = nodes_[n].in;
    if (recompute_nodes_[n] && std::find(in.begin(), in.end(), slot) != in.end()) return true;
  }
  return false;
}

Cost Tape::forward_cost() const {
  Cost sum;
  for (const TapeNode& node : nodes_) sum += node.op->forward_cost(node.attrs, input_types(node));
  return sum;
}

Cost Tape::backward_cost() const {
  Cost sum;
  for (const TapeNode& node : nodes_) {
    if (node.needs_backward) sum += node.op->backward_cost(node.attrs, input_types(node));
  }
  return sum;
}

Cost Tape::recompute_cost() const {
  Cost sum;
  for (size_t n = 0; n < nodes_.size(); ++n) {
    if (recompute_nodes_[n])
      sum += nodes_[n].op->forward_cost(nodes_[n].attrs, input_types(nodes_[n]));
  }
  return sum;
}

}  // namespace vitrine

// Time and bytes of one block.
#include "plan/block_cost.h"

#include <algorithm>
#include <cmath>

#include "plan/tape_time.h"

namespace vitrine {
namespace {

// Of tensor-parallel communication that is pipelined with its product, what stays exposed; and of
// the exchange of keys and values along a context ring, what attention does not cover is left.
constexpr double kTensorExposed = 0.30;
// Of tokens' exchange beside the other direction of another micro-batch: what the first and last of
// a step have nothing beside them for, and the share of the multiprocessors that the exchange takes
// from the products (24 of 132, DeepEP on H100).
constexpr double kExpertExposed = 0.30 + 24.0 / 132;

bool is_norm(const std::string& name) {
  return name == "rms_norm" || name == "layer_norm" || name == "add_rms_norm" ||
         name == "add_layer_norm" || name == "eager_rms_norm";
}
bool is_activation(const std::string& name) {
  return name == "swiglu" || name == "gelu" || name == "gated_product" || name == "eager_swiglu";
}

// How long the card waits while the host issues work: nothing where the card is far behind, all
// where the host is; where both take as long, waits of single operations add up, as neither is
// even.
double waiting_for_host(double busy, double issue) {
  if (issue <= 0) return 0;
  const double longest = std::max(busy, issue), ratio = std::min(busy, issue) / longest;
  return longest * std::cbrt(1 + ratio * ratio * ratio) - busy;
}

// Whether the policy keeps every second of such products.
bool half_kept(const ClusterStrategy& strategy, const TapeNode& node) {
  return strategy.recompute == Recompute::kSelective && strategy.keep_products &&
         (node.op->name == "linear" || node.op->name == "grouped_linear");
}

// Whether the host issues a node of a mixture's layer itself: graphs hold what has one shape.
std::vector<bool> issued_by_host(const Tape& tape, const ClusterStrategy& strategy) {
  std::vector<bool> issued(tape.nodes().size(), true);
  size_t sent = issued.size(), back = 0;
  for (size_t n = 0; n < issued.size(); ++n) {
    const std::string& name = tape.nodes()[n].op->name;
    if (name == "router" && strategy.router_graphs) issued[n] = false;
    if (name == "dispatch") sent = n;
    if (name == "combine") back = n;
  }
  if (!strategy.static_graphs || sent == issued.size()) return issued;
  for (size_t n = 0; n < issued.size(); ++n) issued[n] = n >= sent && n <= back;
  return issued;
}

// Which slots the backward reads, and which nodes run again for it.
struct Kept {
  std::vector<bool> slot, again;
};

Kept kept_slots(const Tape& tape, const ClusterStrategy& strategy) {
  const Recompute policy = strategy.recompute;
  const bool keep_products = strategy.keep_products, recompute_mlp = strategy.recompute_mlp;
  Kept kept;
  kept.slot.assign(tape.slots().size(), false);
  kept.again.assign(tape.nodes().size(), false);
  const auto read = [&](int slot) {
    if (slot >= 0) kept.slot[static_cast<size_t>(slot)] = true;
  };
  bool scores = false;
  for (const TapeNode& node : tape.nodes()) {
    scores = scores || node.op->name == "scored_attention";
    if (!node.needs_backward) continue;
    for (size_t i = 0; i < node.in.size(); ++i) {
      if (node.op->backward_reads_in >> i & 1u) read(node.in[i]);
    }
    for (size_t i = 0; i < node.out.size(); ++i) {
      if (node.op->backward_reads_out >> i & 1u) read(node.out[i]);
    }
    for (const int slot : node.saved) read(slot);
  }
  // A gathered copy is made again in backward from the part that is kept; a "copy" into the tensor
  // group is its input.
  for (size_t n = tape.nodes().size(); n-- > 0;) {
    const TapeNode& node = tape.nodes()[n];
    if (node.op->name != "tensor_gather" && node.op->name != "tensor_copy") continue;
    const auto out = static_cast<size_t>(node.out[0]);
    if (!kept.slot[out]) continue;
    kept.slot[out] = false;
    kept.again[n] = node.op->name == "tensor_gather";
    read(node.in[0]);
  }
  if (policy == Recompute::kFull) {
    std::fill(kept.again.begin(), kept.again.end(), true);
    if (strategy.recompute_needed) {
      std::vector<bool> wanted = kept.slot;
      for (size_t n = tape.nodes().size(); n-- > 0;) {
        const TapeNode& node = tape.nodes()[n];
        const auto is_wanted = [&](int slot) { return wanted[static_cast<size_t>(slot)]; };
        kept.again[n] = std::any_of(node.out.begin(), node.out.end(), is_wanted) ||
                        std::any_of(node.saved.begin(), node.saved.end(), is_wanted);
        if (!kept.again[n]) continue;
        for (const int slot : node.in) {
          if (slot >= 0) wanted[static_cast<size_t>(slot)] = true;
        }
      }
    }
  } else if (policy == Recompute::kSelective && keep_products) {
    std::fill(kept.slot.begin(), kept.slot.end(), false);
    for (size_t n = 0; n < tape.nodes().size(); ++n) {
      const TapeNode& node = tape.nodes()[n];
      // Of products that are counted as one here (queries, keys and values; gate and up) every
      // second is kept: half the bytes, and half the time again.
      const bool product = node.op->name == "linear" || node.op->name == "grouped_linear";
      const bool attention = node.op->name == "flash_attention";
      const bool keep = attention || product || node.op->name == "lm_loss";
      kept.again[n] = !keep || product;
      if (!keep) continue;
      for (const int slot : node.out) read(slot);
      for (const int slot : node.saved) read(slot);
    }
    for (size_t i = 0; i < tape.inputs().size(); ++i) read(static_cast<int>(i));
  } else if (policy == Recompute::kSelective) {
    for (size_t n = 0; n < tape.nodes().size(); ++n) {
      const TapeNode& node = tape.nodes()[n];
      if (scores ? node.op->name != "scored_attention"
                 : !is_norm(node.op->name) && !is_activation(node.op->name)) {
        continue;
      }
      if (!node.needs_backward) continue;
      kept.again[n] = true;
      if (scores) {
        for (const int slot : node.saved) kept.slot[static_cast<size_t>(slot)] = false;
      } else {
        // The last output: of a fused add and norm the sum is kept, the normed value is not.
        kept.slot[static_cast<size_t>(node.out.back())] = false;
        for (const int slot : node.saved) {
          // Statistics of a row are small and kept.
          const TensorType& type = tape.slots()[static_cast<size_t>(slot)].type;
          const TensorType& out = tape.slots()[static_cast<size_t>(node.out.back())].type;
          if (type.shape.elements() * 4 >= out.shape.elements())
            kept.slot[static_cast<size_t>(slot)] = false;
        }
        const int source = tape.slots()[static_cast<size_t>(node.in[0])].producer;
        if (recompute_mlp && is_activation(node.op->name) && source >= 0) {
          kept.slot[static_cast<size_t>(node.in[0])] = false;
          kept.again[static_cast<size_t>(source)] = true;
        } else {
          read(node.in[0]);
        }
      }
    }
  }
  return kept;
}

}  // namespace

TimeParts& TimeParts::operator+=(const TimeParts& other) {
  for (size_t c = 0; c < compute.size(); ++c) compute[c] += other.compute[c];
  launch += other.launch;
  tensor += other.tensor;
  context += other.context;
  expert += other.expert;
  return *this;
}

BlockCost block_cost(const ShardBlock& block,
                     const ClusterStrategy& strategy,
                     const Cluster& cluster,
                     const CardModel& card) {
  const Tape& tape = *block.tape;
  const Kept kept = kept_slots(tape, strategy);
  const bool full = strategy.recompute == Recompute::kFull && block.output_bytes > 0;
  const GroupPlace tensor = place_group(cluster, strategy.mesh.tensor, 1);
  const GroupPlace context = place_group(cluster, strategy.mesh.context, strategy.mesh.tensor);
  // Experts are not cut by tensor ranks: a group is of neighbours.
  const GroupPlace expert = place_group(cluster, strategy.expert, 1);
  BlockCost cost;
  std::vector<bool> held(tape.slots().size(), false);  // for gradients of weights
  int forward_launches = 0, backward_launches = 0, recompute_launches = 0;
  double forward_busy = 0, backward_busy = 0, recompute_busy = 0;
  const std::vector<OpTime> times = tape_times(card, tape);
  const std::vector<bool> issued = issued_by_host(tape, strategy);
  for (size_t n = 0; n < tape.nodes().size(); ++n) {
    const TapeNode& node = tape.nodes()[n];
    const OpTime& t = times[n];
    const auto c = static_cast<size_t>(t.op_class);
    const bool back = node.needs_backward && block.trains;
    const bool again =
        kept.again[n] && block.trains &&
        (full || strategy.recompute != Recompute::kFull || node.op->name == "tensor_gather");
    cost.forward.compute[c] += t.forward_ns;
    forward_busy += t.forward_ns;
    if (issued[n]) forward_launches += t.forward_launches;
    cost.flops += t.forward_flops;
    if (back) {
      cost.backward_input.compute[c] += t.backward_input_ns;
      cost.backward_weight.compute[c] += t.backward_weight_ns;
      backward_busy += t.backward_input_ns + t.backward_weight_ns;
      if (issued[n]) backward_launches += t.backward_launches;
      cost.flops += t.backward_flops;
      if (t.backward_weight_ns > 0) {
        const auto bytes = [&](int slot) {
          return tape.slots()[static_cast<size_t>(slot)].type.bytes();
        };
        cost.weight_bytes += bytes(node.out[0]);
        const auto x = static_cast<size_t>(node.in[0]);
        if (!held[x]) cost.weight_bytes += bytes(node.in[0]);
        held[x] = true;
      }
    }
    if (again) {
      const double share = half_kept(strategy, node) ? 0.5 : 1;
      cost.recompute.compute[c] += t.forward_ns * share;
      recompute_busy += t.forward_ns * share;
      if (issued[n]) recompute_launches += t.forward_launches;
      cost.flops += t.forward_flops;
    }
    std::vector<TensorType> in;
    for (const int slot : node.in) {
      in.push_back(slot < 0 ? TensorType{} : tape.slots()[static_cast<size_t>(slot)].type);
    }
    const NodeTraffic traffic = node_traffic(*node.op, node.attrs, in);
    if (traffic.group == PlanGroup::kNone) continue;
    const GroupPlace group = traffic.group == PlanGroup::kTensor    ? tensor
                             : traffic.group == PlanGroup::kContext ? context
                                                                    : expert;
    const double copies = strategy.dispatcher == Dispatcher::kCopies ? 1 : traffic.copies;
    const bool once =
        traffic.group == PlanGroup::kExpert && strategy.dispatcher == Dispatcher::kRanks;
    double there =
        collective_ns(cluster, traffic.forward, traffic.forward_bytes, group, copies, once);
    // Gradients of keys and values travel beside them, in fp32 where a framework sums them.
    const double backward_bytes =
        traffic.backward_bytes *
        (traffic.group == PlanGroup::kContext && strategy.eager_ring ? 1.5 : 1);
    double back_ns =
        back ? collective_ns(cluster, traffic.backward, backward_bytes, group, copies, once) : 0;
    const double sent = traffic.forward_bytes * (again ? 2 : 1) + (back ? backward_bytes : 0);
    if (traffic.group == PlanGroup::kTensor) {
      // The second gather of a split sequence runs beside the product of the input's gradient.
      const bool hidden_again = node.op->name == "tensor_gather" && !full;
      const double exposed = strategy.overlap_tensor ? kTensorExposed : 1;
      cost.forward.tensor += there * exposed;
      cost.backward_input.tensor += back_ns * exposed;
      if (again && !hidden_again) cost.recompute.tensor += there * exposed;
      cost.tensor_bytes += sent;
    } else if (traffic.group == PlanGroup::kContext) {
      // All but the first exchange is covered by the attention of the part before; nothing where a
      // compiled graph waits for each as it starts.
      const double ring = strategy.eager_ring && strategy.fused ? 1 : 1.0 / strategy.mesh.context;
      cost.forward.context += std::max(there * ring, there - t.forward_ns);
      cost.backward_input.context += std::max(back_ns * ring, back_ns - t.backward_input_ns);
      if (again) cost.recompute.context += std::max(there * ring, there - t.forward_ns);
      cost.context_bytes += sent;
    } else {
      const double exposed = strategy.overlap_expert ? kExpertExposed : 1;
      cost.forward.expert += there * exposed;
      cost.backward_input.expert += back_ns * exposed;
      if (again) cost.recompute.expert += there * exposed;
      cost.expert_bytes += sent;
    }
  }
  if (!strategy.graphs) {
    const double launch = card.efficiency.launch_ns;
    cost.forward.launch =
        waiting_for_host(forward_busy + cost.forward.tensor, launch * forward_launches);
    cost.backward_input.launch =
        waiting_for_host(backward_busy + cost.backward_input.tensor, launch * backward_launches);
    cost.recompute.launch =
        waiting_for_host(recompute_busy + cost.recompute.tensor, launch * recompute_launches);
  }
  if (strategy.accumulate_apart && strategy.accumulation() > 1 && block.trains) {
    const auto held_here =
        static_cast<double>(block.parameters + block.expert_parameters - block.frozen_parameters);
    cost.backward_weight.compute[static_cast<size_t>(OpClass::kMemory)] +=
        memory_ns(card, held_here * strategy.accumulate_bytes);
  }
  for (size_t s = 0; s < tape.slots().size(); ++s) {
    const TapeSlot& slot = tape.slots()[s];
    if (!kept.slot[s] || !block.trains) continue;
    if (slot.kind == SlotKind::kInput) {
      cost.input_bytes += slot.type.bytes();
    } else if (slot.kind != SlotKind::kParameter && slot.output < 0) {
      const bool half = slot.producer >= 0 &&
                        half_kept(strategy, tape.nodes()[static_cast<size_t>(slot.producer)]);
      cost.kept_bytes += slot.type.bytes() / (half ? 2 : 1);
    }
  }
  if (full && block.trains) {
    cost.recomputed_bytes = cost.kept_bytes;
    cost.kept_bytes = 0;
    cost.input_bytes = 0;
    for (const PortType& port : tape.inputs()) {
      if (port.requires_grad) cost.input_bytes += port.type.bytes();
    }
  }
  cost.forward_bytes = tape.layout().forward_scratch_bytes;
  cost.backward_bytes = tape.layout().backward_scratch_bytes;
  return cost;
}

}  // namespace vitrine

// What one block costs one rank: time of its forward and backward on a micro-batch, bytes that it
// keeps between them, bytes that it needs while it runs.
#pragma once

#include <array>

#include "plan/collective_time.h"
#include "plan/op_time.h"
#include "plan/shard_blocks.h"

namespace vitrine {

// Nanoseconds by what they are spent on.
struct TimeParts {
  std::array<double, kOpClasses> compute{};    // by OpClass
  double launch = 0;                           // the card waits for the host to issue work
  double tensor = 0, context = 0, expert = 0;  // communication that nothing hides
  double total() const {
    double sum = launch + tensor + context + expert;
    for (const double c : compute) sum += c;
    return sum;
  }
  TimeParts& operator+=(const TimeParts& other);
};

struct BlockCost {
  TimeParts forward, backward_input, backward_weight, recompute;  // recompute: inside backward
  double forward_ns() const { return forward.total(); }
  double backward_ns() const {
    return backward_input.total() + backward_weight.total() + recompute.total();
  }
  double flops = 0;         // executed a micro-batch, recomputation included
  int64_t kept_bytes = 0;   // from forward to backward, its input left out
  int64_t input_bytes = 0;  // of its input, where backward reads it
  // What gradients of weights need that come after the whole backward: inputs of products and
  // gradients of their outputs.
  int64_t weight_bytes = 0;
  int64_t recomputed_bytes = 0;  // kept_bytes of the block while its backward runs, if recomputed
  int64_t forward_bytes = 0, backward_bytes = 0;                 // scratch while it runs
  double tensor_bytes = 0, context_bytes = 0, expert_bytes = 0;  // sent a micro-batch, both ways
};

BlockCost block_cost(const ShardBlock& block,
                     const ClusterStrategy& strategy,
                     const Cluster& cluster,
                     const CardModel& card);

}  // namespace vitrine

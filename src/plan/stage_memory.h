// Memory of a pipeline stage, and among how many ranks the states of its parameters are shared.
#pragma once

#include <cstdint>
#include <string>

#include "core/memory_ledger.h"
#include "plan/cluster_strategy.h"
#include "plan/collective_time.h"

namespace vitrine {

// Memory of the cards of one pipeline stage at its peak, in bytes.
struct StageMemory {
  MemoryByCategory bytes{};  // by MemoryCategory, at the peak
  double context_bytes = 0;  // driver, libraries, communicators
  double fragmentation_bytes = 0;
  std::string peak_moment;  // "backward of the head, micro-batch 3 of 8, 4 in flight"
  int in_flight = 1;        // micro-batches whose activations are alive at the peak
  int64_t parameters = 0;   // elements on a card of the stage
  double total() const;
};

// What the parameters of a stage are, on one card.
struct StageParameters {
  int64_t dense = 0, expert = 0, frozen = 0, largest_block = 0;
};

// How many ranks share a parameter's states, and its values under ZeRO-3.
struct Shards {
  int64_t dense = 1, expert = 1;  // optimizer and gradients
  int64_t dense_values = 1, expert_values = 1;
  GroupPlace dense_group, expert_group, values_group, replica_group;
};

Shards shards_of(const ClusterStrategy& strategy, const Cluster& cluster);

}  // namespace vitrine

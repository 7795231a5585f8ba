// Memory arithmetic.
#include "schedule/memory.h"

#include <algorithm>

namespace vitrine {
namespace {

// Bytes an element in arrays that every rank holds in full, and in arrays cut over the ranks.
struct BytesPerElement {
  int64_t full_parameters = 0, shard_parameters = 0;
  int64_t full_gradients = 0, shard_gradients = 0;
  int64_t full_optimizer = 0, shard_optimizer = 0;
};

BytesPerElement bytes_per_element(const Unit& unit, const Strategy& strategy) {
  const bool alone = strategy.mesh.data == 1;
  const Sharding shard = alone ? Sharding{} : strategy.shard;
  const auto compute = static_cast<int64_t>(dtype_bytes(strategy.compute_dtype));
  const auto gradient = static_cast<int64_t>(dtype_bytes(strategy.gradient_dtype));
  BytesPerElement bytes;
  (shard.parameters && !unit.persistent ? bytes.shard_parameters : bytes.full_parameters) = compute;
  if (unit.frozen) return bytes;
  (shard.gradients ? bytes.shard_gradients : bytes.full_gradients) = gradient;
  (shard.optimizer ? bytes.shard_optimizer : bytes.full_optimizer) =
      (strategy.separate_masters() ? 4 : 0) +
      2 * static_cast<int64_t>(dtype_bytes(strategy.moment_dtype));
  return bytes;
}

bool local(const Unit& unit, const std::vector<int>& blocks) {
  return std::find(blocks.begin(), blocks.end(), unit.block) != blocks.end();
}

}  // namespace

MemoryByCategory model_state_bytes(const ParameterTable& table,
                                   const Strategy& strategy,
                                   const std::vector<int>& blocks) {
  MemoryByCategory memory{};
  for (const Unit& unit : table.units) {
    if (!local(unit, blocks)) continue;
    const BytesPerElement b = bytes_per_element(unit, strategy);
    const int64_t full = padded_elements(unit.elements, strategy.mesh.data);
    const int64_t piece = full / strategy.mesh.data;
    memory[static_cast<size_t>(MemoryCategory::kParameters)] +=
        b.full_parameters * full + b.shard_parameters * piece;
    memory[static_cast<size_t>(MemoryCategory::kGradients)] +=
        b.full_gradients * full + b.shard_gradients * piece;
    memory[static_cast<size_t>(MemoryCategory::kOptimizer)] +=
        b.full_optimizer * full + b.shard_optimizer * piece;
  }
  return memory;
}

int64_t zero_arithmetic_bytes(const ParameterTable& table, const Strategy& strategy) {
  int64_t full = 0, cut = 0;
  for (const Unit& unit : table.units) {
    const BytesPerElement b = bytes_per_element(unit, strategy);
    full += (b.full_parameters + b.full_gradients + b.full_optimizer) * unit.elements;
    cut += (b.shard_parameters + b.shard_gradients + b.shard_optimizer) * unit.elements;
  }
  return full + (cut + strategy.mesh.data - 1) / strategy.mesh.data;
}

int64_t padding_bytes(const ParameterTable& table,
                      const Strategy& strategy,
                      const std::vector<int>& blocks) {
  // In units of 1 / N byte, so that shares of elements that do not divide stay exact.
  const int64_t ranks = strategy.mesh.data;
  int64_t scaled = 0, cut = 0;
  for (const Unit& unit : table.units) {
    if (!local(unit, blocks)) continue;
    const BytesPerElement b = bytes_per_element(unit, strategy);
    const int64_t extra = padded_elements(unit.elements, strategy.mesh.data) - unit.elements;
    scaled += (b.full_parameters + b.full_gradients + b.full_optimizer) * extra * ranks;
    scaled += (b.shard_parameters + b.shard_gradients + b.shard_optimizer) * extra;
    cut += (b.shard_parameters + b.shard_gradients + b.shard_optimizer) * unit.elements;
  }
  const int64_t rounded_up = (cut + ranks - 1) / ranks * ranks - cut;
  return (scaled - rounded_up) / ranks;
}

}  // namespace vitrine

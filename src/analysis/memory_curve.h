// Peaks of a curve of memory, and a thinner curve that keeps them.
#pragma once

#include <vector>

#include "analysis/memory_facts.h"

namespace vitrine {

// At most `most` points (>= 8), in order: the first, the last, and of each stretch the lowest and
// the highest `allocated` and the highest `reserved`.
std::vector<MemoryPoint> thin(const std::vector<MemoryPoint>& points, size_t most);

// Fills peak_reserved and fragmentation.
void set_reserved(MemoryFacts& facts, const std::vector<MemoryPoint>& points);

}  // namespace vitrine

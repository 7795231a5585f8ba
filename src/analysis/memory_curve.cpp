// Extremes of equal stretches of points.
#include "analysis/memory_curve.h"

#include <algorithm>

namespace vitrine {

std::vector<MemoryPoint> thin(const std::vector<MemoryPoint>& points, size_t most) {
  if (points.size() <= most) return points;
  const size_t stretches = (most - 2) / 3;
  std::vector<size_t> kept = {0};
  for (size_t s = 0; s < stretches; ++s) {
    const size_t begin = points.size() * s / stretches, end = points.size() * (s + 1) / stretches;
    size_t lowest = begin, highest = begin, reserved = begin;
    for (size_t i = begin; i < end; ++i) {
      if (points[i].allocated < points[lowest].allocated) lowest = i;
      if (points[i].allocated > points[highest].allocated) highest = i;
      if (points[i].reserved > points[reserved].reserved) reserved = i;
    }
    kept.insert(kept.end(), {lowest, highest, reserved});
  }
  kept.push_back(points.size() - 1);
  std::sort(kept.begin(), kept.end());
  kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
  std::vector<MemoryPoint> out;
  out.reserve(kept.size());
  for (const size_t i : kept) out.push_back(points[i]);
  return out;
}

// Reserved memory stays at its peak while the blocks inside come and go: what counts is the moment
// when they filled it best.
void set_reserved(MemoryFacts& facts, const std::vector<MemoryPoint>& points) {
  for (const MemoryPoint& point : points) {
    const int64_t free = point.reserved - point.allocated;
    if (point.reserved > facts.peak_reserved ||
        (point.reserved == facts.peak_reserved && point.reserved > 0 &&
         free < facts.fragmentation)) {
      facts.peak_reserved = point.reserved;
      facts.fragmentation = free;
    }
  }
}

}  // namespace vitrine

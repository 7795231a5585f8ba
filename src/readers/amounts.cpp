// Bounds of single numbers, and of their sums by what is added up.
#include "readers/amounts.h"

#include <algorithm>
#include <cstdlib>

#include "core/format.h"

namespace vitrine {

int64_t Amounts::bounded(int64_t value, int64_t least, int64_t most) {
  const int64_t near = std::clamp(value, least, most);
  changed_ += near != value;
  return near;
}

int64_t Amounts::summed(int64_t value, int64_t least, int64_t& sum) {
  const int64_t near = std::clamp(value, least, kMost);
  const int64_t size = std::abs(near);
  const int64_t kept = size <= kMostSum - sum ? near : 0;
  changed_ += kept != value;
  sum += std::abs(kept);
  return kept;
}

void Amounts::bound(RankTimeline& timeline) {
  int64_t copied = 0, sent = 0, in = 0, out = 0, allocated = 0;
  for (int64_t& bytes : timeline.spans.bytes) bytes = summed(bytes, 0, copied);
  for (Collective& collective : timeline.collectives) {
    collective.in_elements = summed(collective.in_elements, 0, in);
    collective.out_elements = summed(collective.out_elements, 0, out);
    collective.sent_bytes = summed(collective.sent_bytes, 0, sent);
  }
  for (AllocationEvent& event : timeline.allocations) {
    event.bytes = summed(event.bytes, -kMost, allocated);
    event.allocated = bounded(event.allocated, -1);
    event.reserved = bounded(event.reserved, -1);
  }
}

void Amounts::bound(AllocatorSnapshot& snapshot) {
  int64_t moved = 0, blocks = 0, segments = 0;
  for (auto& history : snapshot.history) {
    for (AllocatorEvent& event : history) event.size_bytes = summed(event.size_bytes, 0, moved);
  }
  for (AllocatorSegment& segment : snapshot.segments) {
    for (int64_t* bytes : {&segment.total_bytes,
                           &segment.allocated_bytes,
                           &segment.active_bytes,
                           &segment.requested_bytes}) {
      *bytes = summed(*bytes, 0, segments);
    }
    for (AllocatorBlock& block : segment.blocks) {
      block.size_bytes = summed(block.size_bytes, 0, blocks);
      block.requested_bytes = summed(block.requested_bytes, 0, blocks);
    }
  }
}

void Amounts::warn(std::vector<std::string>& warnings) const {
  if (changed_ == 0) return;
  warnings.push_back(
      format("%lld numbers of bytes or elements can't be (below what they may, beyond 2^44, or "
             "beyond 2^56 in all): taken as the nearest that can, or 0",
             static_cast<long long>(changed_)));
}

}  // namespace vitrine

// Sets of integer time intervals: union, difference, intersection, length. The one interval
// library.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace vitrine {

// [begin, end)
struct Interval {
  int64_t begin, end;
  bool operator==(const Interval&) const = default;
};

// Kept sorted, disjoint, not touching, none empty.
class IntervalSet {
 public:
  IntervalSet() = default;
  // Any order, overlapping, empty or reversed ones allowed (the last two hold nothing).
  explicit IntervalSet(std::vector<Interval> intervals);

  // Adds an interval that begins no earlier than any before it: sorted input costs no sort.
  // Empty and reversed ones hold nothing.
  void append(Interval next);

  int64_t length() const;
  bool empty() const { return intervals_.empty(); }
  const std::vector<Interval>& intervals() const { return intervals_; }
  IntervalSet clip(Interval window) const;

  friend IntervalSet unite(const IntervalSet& a, const IntervalSet& b);
  friend IntervalSet intersect(const IntervalSet& a, const IntervalSet& b);
  friend IntervalSet subtract(const IntervalSet& a, const IntervalSet& b);

 private:
  std::vector<Interval> intervals_;
};

inline void IntervalSet::append(Interval next) {
  if (next.begin >= next.end) return;
  if (!intervals_.empty() && next.begin <= intervals_.back().end) {
    intervals_.back().end = std::max(intervals_.back().end, next.end);
  } else {
    intervals_.push_back(next);
  }
}

IntervalSet unite(const IntervalSet& a, const IntervalSet& b);
IntervalSet intersect(const IntervalSet& a, const IntervalSet& b);
IntervalSet subtract(const IntervalSet& a, const IntervalSet& b);

}  // namespace vitrine

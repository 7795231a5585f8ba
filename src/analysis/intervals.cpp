// Linear merges over sorted intervals.
#include "analysis/intervals.h"

#include <algorithm>

namespace vitrine {

IntervalSet::IntervalSet(std::vector<Interval> intervals) {
  const auto by_begin = [](const Interval& a, const Interval& b) { return a.begin < b.begin; };
  if (!std::is_sorted(intervals.begin(), intervals.end(), by_begin)) {
    std::sort(intervals.begin(), intervals.end(), by_begin);
  }
  for (const Interval& next : intervals) append(next);
}

int64_t IntervalSet::length() const {
  int64_t sum = 0;
  for (const Interval& i : intervals_) sum += i.end - i.begin;
  return sum;
}

IntervalSet IntervalSet::clip(Interval window) const {
  IntervalSet out;
  auto it = std::partition_point(intervals_.begin(), intervals_.end(), [&](const Interval& i) {
    return i.end <= window.begin;
  });
  for (; it != intervals_.end() && it->begin < window.end; ++it) {
    const Interval part{std::max(it->begin, window.begin), std::min(it->end, window.end)};
    if (part.begin < part.end) out.intervals_.push_back(part);
  }
  return out;
}

IntervalSet unite(const IntervalSet& a, const IntervalSet& b) {
  IntervalSet out;
  auto i = a.intervals_.begin(), j = b.intervals_.begin();
  while (i != a.intervals_.end() || j != b.intervals_.end()) {
    const bool first = j == b.intervals_.end() || (i != a.intervals_.end() && i->begin <= j->begin);
    out.append(first ? *i++ : *j++);
  }
  return out;
}

IntervalSet intersect(const IntervalSet& a, const IntervalSet& b) {
  IntervalSet out;
  auto i = a.intervals_.begin(), j = b.intervals_.begin();
  while (i != a.intervals_.end() && j != b.intervals_.end()) {
    const Interval part{std::max(i->begin, j->begin), std::min(i->end, j->end)};
    if (part.begin < part.end) out.intervals_.push_back(part);
    if (i->end < j->end) {
      ++i;
    } else {
      ++j;
    }
  }
  return out;
}

IntervalSet subtract(const IntervalSet& a, const IntervalSet& b) {
  IntervalSet out;
  auto j = b.intervals_.begin();
  for (Interval rest : a.intervals_) {
    while (j != b.intervals_.end() && j->end <= rest.begin) ++j;
    for (auto k = j; k != b.intervals_.end() && k->begin < rest.end; ++k) {
      if (rest.begin < k->begin) out.intervals_.push_back({rest.begin, k->begin});
      rest.begin = std::min(rest.end, k->end);
    }
    if (rest.begin < rest.end) out.intervals_.push_back(rest);
  }
  return out;
}

}  // namespace vitrine

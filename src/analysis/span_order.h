// The order of spans by begin, and the place of a step by its number.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <unordered_map>
#include <vector>

#include "timeline/timeline.h"

namespace vitrine {

// Readers sort spans by begin, parents first; others are sorted here, without touching them.
class SpanOrder {
 public:
  explicit SpanOrder(const Spans& spans) : size_(spans.size()) {
    const auto before = [&](size_t a, size_t b) {
      return spans.start_ns[a] != spans.start_ns[b] ? spans.start_ns[a] < spans.start_ns[b]
                                                    : spans.duration_ns[a] > spans.duration_ns[b];
    };
    bool sorted = true;
    for (size_t i = 1; i < size_ && sorted; ++i) sorted = !before(i, i - 1);
    if (sorted) return;
    order_.resize(size_);
    std::iota(order_.begin(), order_.end(), size_t{0});
    std::stable_sort(order_.begin(), order_.end(), before);
  }
  size_t size() const { return size_; }
  size_t operator[](size_t place) const { return order_.empty() ? place : order_[place]; }

 private:
  size_t size_;
  std::vector<size_t> order_;  // empty: as they are
};

// Steps by begin; -1 for a number that no step span has.
class StepIndex {
 public:
  StepIndex(const Spans& spans, const SpanOrder& order) {
    for (size_t k = 0; k < order.size(); ++k) {
      const size_t i = order[k];
      if (spans.kind[i] != SpanKind::kStep) continue;
      if (places_.try_emplace(spans.step[i], static_cast<int32_t>(spans_.size())).second) {
        spans_.push_back(i);
      }
    }
  }
  const std::vector<size_t>& spans() const { return spans_; }
  int32_t operator()(int32_t step) const {
    if (step != last_step_) {
      const auto it = places_.find(step);
      last_step_ = step, last_place_ = it == places_.end() ? -1 : it->second;
    }
    return last_place_;
  }

 private:
  std::vector<size_t> spans_;
  std::unordered_map<int32_t, int32_t> places_;
  mutable int32_t last_step_ = INT32_MIN, last_place_ = -1;
};

}  // namespace vitrine

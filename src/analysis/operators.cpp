// Finding rows, and the table in its final order.
#include "analysis/operators.h"

#include <algorithm>

#include "analysis/flops.h"

namespace vitrine {

int32_t OperatorTable::row(const RankTimeline& timeline, StringId name, StringId shapes) {
  const uint64_t key = static_cast<uint64_t>(name) << 32 | shapes;
  const uint32_t place = places_.insert(key, static_cast<uint32_t>(rows_.size()));
  if (place == rows_.size()) {
    Row row;
    row.name = name, row.shapes = shapes;
    if (shapes != kNoString) {
      const OperatorCost cost = operator_cost(timeline.strings[name], timeline.strings[shapes]);
      row.flops = cost.flops, row.bytes = cost.bytes;
    }
    rows_.push_back(row);
  }
  return static_cast<int32_t>(place);
}

double OperatorTable::total_flops() const {
  double sum = 0;
  for (const Row& row : rows_) sum += row.flops * static_cast<double>(row.outermost);
  return sum;
}

std::vector<OperatorRow> OperatorTable::rows(const RankTimeline& timeline) const {
  constexpr size_t kMost = 500;
  std::vector<const Row*> order;
  for (const Row& row : rows_) order.push_back(&row);
  const auto before = [](const Row* a, const Row* b) {
    return a->device_ns != b->device_ns ? a->device_ns > b->device_ns : a->self_ns > b->self_ns;
  };
  std::stable_sort(order.begin(), order.end(), before);
  if (order.size() > kMost) order.resize(kMost);
  std::vector<OperatorRow> out;
  for (const Row* row : order) {
    const auto count = static_cast<double>(row->count);
    out.push_back({timeline.strings[row->name],
                   timeline.strings[row->shapes],
                   row->count,
                   row->host_ns,
                   row->self_ns,
                   row->device_ns,
                   row->flops * count,
                   row->bytes * count});
  }
  return out;
}

}  // namespace vitrine

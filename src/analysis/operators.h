// Rows of the operator table, by name and shapes.
#pragma once

#include <vector>

#include "analysis/flat_map.h"
#include "analysis/rank_facts.h"

namespace vitrine {

class OperatorTable {
 public:
  struct Row {
    StringId name = kNoString, shapes = kNoString;
    int64_t count = 0, host_ns = 0, self_ns = 0, device_ns = 0;
    int64_t outermost = 0;        // calls that are inside no other operator of known cost
    double flops = 0, bytes = 0;  // of one call; 0 = not known
  };

  int32_t row(const RankTimeline& timeline, StringId name, StringId shapes);
  Row& operator[](int32_t row) { return rows_[static_cast<size_t>(row)]; }
  double total_flops() const;  // an operator inside another one is not counted again
  // By device_ns, then host_self_ns; at most 500.
  std::vector<OperatorRow> rows(const RankTimeline& timeline) const;

 private:
  std::vector<Row> rows_;
  FlatMap places_;
};

}  // namespace vitrine

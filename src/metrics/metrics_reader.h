// metrics.jsonl read back as columns.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace vitrine {

struct MetricsTable {
  std::vector<int64_t> steps;
  // In order of first appearance; as long as `steps`, NaN where a line lacks the name or holds
  // null.
  std::vector<std::pair<std::string, std::vector<double>>> columns;

  // Null when there is no such column.
  const std::vector<double>* find(const std::string& name) const;
};

// A last line without its newline (the process died in it) is left out. Throws IoError when the
// file can't be read, ConfigError with the line number when a whole line is not an object of
// numbers with "step".
MetricsTable read_metrics(const std::string& path);

// The leading whole lines whose step is at most `step`; the rest of `text` belongs to a lost
// future.
std::string lines_up_to_step(const std::string& text, int64_t step);

}  // namespace vitrine

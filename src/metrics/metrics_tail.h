// The last whole line of a metrics.jsonl that is being written.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace vitrine {

struct MetricsLine {
  int64_t step = 0;
  double time_s = 0;  // since the epoch
  // As written; NaN where the line holds null.
  std::vector<std::pair<std::string, double>> values;

  // NaN when there is no such name.
  double get(const std::string& name) const;
};

// Nothing when there is no file, or no whole line yet. Reads from the end, so that it costs the
// same however long the run is. Throws ConfigError when the line is not one of metrics, IoError
// when the file can't be read.
std::optional<MetricsLine> last_metrics(const std::string& path);

}  // namespace vitrine

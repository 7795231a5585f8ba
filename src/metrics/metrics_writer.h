// The numbers of a run, step by step: metrics.jsonl and TensorBoard event files in the run's
// folder.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "metrics/event_file.h"

namespace vitrine {

// Names and values in the order in which they are written, e.g. {"loss", 2.31}, {"lr", 3e-4}.
using Metrics = std::vector<std::pair<std::string, double>>;

struct MetricsOptions {
  bool tensorboard = true;
  // The step of the checkpoint a run goes on from: lines of later steps are cut off, since those
  // steps are done again. -1 = a new run: an older metrics.jsonl is replaced.
  int64_t resumed_step = -1;
};

// One process (rank 0) writes. Formats: docs/formats/metrics.md. Throws IoError.
class MetricsWriter {
 public:
  MetricsWriter(const std::string& folder, const MetricsOptions& options = {});
  ~MetricsWriter();
  MetricsWriter(const MetricsWriter&) = delete;
  MetricsWriter& operator=(const MetricsWriter&) = delete;

  // One whole line, handed to the system before this returns. NaN and infinities become null in the
  // line. Steps ascend; a step that does not is a ConfigError.
  void write(int64_t step, const Metrics& values);

 private:
  std::string path_;
  int fd_ = -1;
  int64_t last_step_;
  std::unique_ptr<EventFile> events_;
};

}  // namespace vitrine

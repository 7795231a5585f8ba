// A running job at one moment, for people, programs and Prometheus.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/json_fwd.h"
#include "gpu/nvml.h"
#include "metrics/metrics_tail.h"

namespace vitrine {

struct LiveView {
  std::string run;                          // its folder; "" = GPUs only
  std::optional<MetricsLine> metrics;       // nothing yet, or no run
  int64_t total_steps = 0;                  // 0 = not known
  double peak_bytes = GpuSample::kUnknown;  // of rank 0, written when the run ends
  bool ended = false;
  double now_s = 0;  // since the epoch: how old the last line is
  std::vector<GpuSample> gpus;
  std::string no_gpus;  // why `gpus` is empty
};

// Reads what the run's folder holds now: metrics.jsonl, run.json, result.json, memory/rank0.json.
// Throws IoError when it is no run's folder.
void read_run(const std::string& folder, LiveView& view);

// A line or two of the run, a line a GPU; ends with a newline.
std::string live_text(const LiveView& view);
// {"run": {"folder", "step", ..., every metric}, "gpus": [...], "reason"}; what is not known is
// left out.
Json live_json(const LiveView& view);
// vitrine_run_*, vitrine_gpu_*; units are Prometheus' base units.
std::string live_prometheus(const LiveView& view);

}  // namespace vitrine

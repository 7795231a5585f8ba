// The three forms of a moment.
#include "report/live_view.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "core/error.h"
#include "core/format.h"
#include "core/json.h"
#include "metrics/prometheus.h"

namespace vitrine {

namespace {

struct Quantity {
  const char *name, *help;
  double GpuSample::*value;
  bool counter = false;
};
// Names of the JSON; Prometheus' have "vitrine_gpu_" before them.
constexpr Quantity kQuantities[] = {
    {"busy_ratio", "Share of time in which a kernel ran", &GpuSample::busy},
    {"memory_busy_ratio",
     "Share of time in which memory was read or written",
     &GpuSample::memory_busy},
    {"memory_used_bytes", "Memory in use", &GpuSample::used_bytes},
    {"memory_total_bytes", "Memory of the GPU", &GpuSample::total_bytes},
    {"power_watts", "Power draw", &GpuSample::power_w},
    {"power_limit_watts", "Power limit", &GpuSample::power_limit_w},
    {"sm_clock_hertz", "Clock of the multiprocessors", &GpuSample::sm_clock_hz},
    {"temperature_celsius", "Temperature of the GPU", &GpuSample::temperature_c},
    {"pcie_sent_bytes_per_second", "PCIe, from the GPU", &GpuSample::pcie_sent_bytes_per_s},
    {"pcie_received_bytes_per_second", "PCIe, to the GPU", &GpuSample::pcie_received_bytes_per_s},
    {"nvlink_sent_bytes_total", "NVLink, from the GPU", &GpuSample::nvlink_sent_bytes, true},
    {"nvlink_received_bytes_total", "NVLink, to the GPU", &GpuSample::nvlink_received_bytes, true},
    {"nvlink_sent_bytes_per_second",
     "NVLink, from the GPU, since the sample before",
     &GpuSample::nvlink_sent_bytes_per_s},
    {"nvlink_received_bytes_per_second",
     "NVLink, to the GPU, since the sample before",
     &GpuSample::nvlink_received_bytes_per_s},
};

bool known(double value) { return !std::isnan(value); }

// The value with so many significant digits, or nothing.
std::string item(const char* before, int digits, double value, const char* after = "") {
  return known(value) ? format("%s%.*g%s", before, digits, value, after) : "";
}

std::string run_text(const LiveView& view) {
  std::string text = view.run + ": ";
  if (!view.metrics) return text + "no step is done yet\n";
  const MetricsLine& line = *view.metrics;
  text += "step " + std::to_string(line.step + 1);
  if (view.total_steps > 0) text += "/" + std::to_string(view.total_steps);
  text += item("  loss ", 4, line.get("loss"));
  text += item("  lr ", 2, line.get("lr"));
  for (const char* unit : {"tokens", "frames", "samples"}) {
    const double rate = line.get(std::string(unit) + "_per_s");
    if (known(rate)) text += "  " + format_count(rate) + " " + unit + "/s";
  }
  text += item("  ", 3, line.get("step_seconds"), " s a step");
  text += item("  comm ", 2, 100 * line.get("comm_share"), " %");
  text += item("  skipped ", 6, line.get("skipped_steps"));
  if (known(view.peak_bytes)) text += "  peak " + format_bytes(view.peak_bytes) + " on rank 0";
  if (view.ended) return text + "  (ended)\n";
  const double age = view.now_s - line.time_s;
  return text + (age >= 0 ? "  " + format_ns(age * 1e9) + " ago\n" : "\n");
}

std::string gpu_text(const GpuSample& g) {
  std::string text = format("GPU %-2d", g.index);
  if (!g.name.empty()) text += " " + g.name;
  text += item("  busy ", 3, 100 * g.busy, " %");
  if (known(g.used_bytes))
    text += "  " + format_bytes(g.used_bytes) + " of " + format_bytes(g.total_bytes);
  text += item("  ", 3, g.power_w) + item(" of ", 3, g.power_limit_w);
  if (known(g.power_w)) text += " W";
  text += item("  ", 4, g.sm_clock_hz * 1e-6, " MHz");
  text += item("  ", 3, g.temperature_c, " C");
  if (known(g.pcie_sent_bytes_per_s)) {
    text += item("  PCIe ", 3, g.pcie_sent_bytes_per_s * 1e-9, " out") +
            item(" ", 3, g.pcie_received_bytes_per_s * 1e-9, " in GB/s");
  }
  if (known(g.nvlink_sent_bytes_per_s)) {
    text += item("  NVLink ", 3, g.nvlink_sent_bytes_per_s * 1e-9, " out") +
            item(" ", 3, g.nvlink_received_bytes_per_s * 1e-9, " in GB/s");
  }
  return text + "\n";
}

Json read_if_there(const std::string& path) {
  return std::filesystem::exists(path) ? read_json_file(path) : Json::object();
}

// `fallback` where the object has no number of that name.
double number_at(const Json& json, const char* key, double fallback) {
  const auto it = json.find(key);
  return it != json.end() && it->is_number() ? it->get<double>() : fallback;
}

}  // namespace

void read_run(const std::string& folder, LiveView& view) {
  if (!std::filesystem::is_directory(folder)) throw IoError("there is no folder " + folder);
  const std::string config = folder + "/run.json", metrics = folder + "/metrics.jsonl";
  if (!std::filesystem::exists(config) && !std::filesystem::exists(metrics)) {
    throw IoError(folder + " is no run's folder: it has neither run.json nor metrics.jsonl");
  }
  view.run = folder;
  view.metrics = last_metrics(metrics);
  const Json run = read_if_there(config);
  if (const auto train = run.find("train"); train != run.end() && train->is_object())
    view.total_steps = static_cast<int64_t>(number_at(*train, "steps", 0));
  view.ended = std::filesystem::exists(folder + "/result.json");
  view.peak_bytes =
      number_at(read_if_there(folder + "/memory/rank0.json"), "peak_bytes", GpuSample::kUnknown);
}

std::string live_text(const LiveView& view) {
  std::string text = view.run.empty() ? "" : run_text(view);
  for (const GpuSample& gpu : view.gpus) text += gpu_text(gpu);
  return text;
}

Json live_json(const LiveView& view) {
  Json json = Json::object();
  if (!view.run.empty()) {
    Json run{{"folder", view.run}, {"ended", view.ended}};
    if (view.total_steps > 0) run["total_steps"] = view.total_steps;
    if (known(view.peak_bytes)) run["peak_bytes"] = view.peak_bytes;
    if (view.metrics) {
      run["step"] = view.metrics->step;
      run["time"] = view.metrics->time_s;
      for (const auto& [name, value] : view.metrics->values) run[name] = value;
    }
    json["run"] = run;
  }
  json["gpus"] = Json::array();
  for (const GpuSample& sample : view.gpus) {
    Json gpu{{"index", sample.index}, {"name", sample.name}};
    for (const Quantity& q : kQuantities) {
      if (known(sample.*q.value)) gpu[q.name] = sample.*q.value;
    }
    json["gpus"].push_back(gpu);
  }
  if (!view.no_gpus.empty()) json["reason"] = view.no_gpus;
  return json;
}

std::string live_prometheus(const LiveView& view) {
  PrometheusText out;
  if (view.metrics) {
    const PrometheusText::Labels run{{"run", view.run}};
    out.gauge("vitrine_run_step", "Last step that is done", run, double(view.metrics->step));
    out.gauge("vitrine_run_time_seconds", "When it was done, Unix time", run, view.metrics->time_s);
    for (const auto& [name, value] : view.metrics->values)
      out.gauge("vitrine_run_" + name, name + " of the last step", run, value);
  }
  for (const Quantity& q : kQuantities) {
    for (const GpuSample& gpu : view.gpus) {
      const PrometheusText::Labels labels{{"gpu", std::to_string(gpu.index)}, {"name", gpu.name}};
      const std::string name = std::string("vitrine_gpu_") + q.name;
      q.counter ? out.counter(name, q.help, labels, gpu.*q.value)
                : out.gauge(name, q.help, labels, gpu.*q.value);
    }
  }
  return out.text();
}

}  // namespace vitrine

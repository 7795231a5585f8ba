// The profile that a calibration leaves.
#include <unistd.h>

#include <algorithm>

#include "calibrate/calibrate.h"
#include "core/clock.h"
#include "core/format.h"
#include "core/json.h"

namespace vitrine {
namespace {

// The best work a nanosecond (= 1e9 a second) of an operation alone on the machine.
double best_rate(const MeasuredMachine& machine, const std::string& op, const std::string& dtype) {
  double best = 0;
  for (const MeasuredOperations& each : machine.operations) {
    if (each.ranks != 1 || each.dtype != dtype) continue;
    for (const MeasuredRow& row : each.rows) {
      if (row.op == op) best = std::max(best, row.work / row.ns);
    }
  }
  return best * 1e9;
}

// Of the longest copy, which goes to memory: a copy reads and writes each byte.
double memory_rate(const MeasuredMachine& machine) {
  double longest = 0, rate = 0;
  for (const MeasuredOperations& each : machine.operations) {
    for (const MeasuredRow& row : each.rows) {
      if (row.op != "copy" || each.ranks != 1 || row.work <= longest) continue;
      longest = row.work;
      rate = 2 * row.work / row.ns * 1e9;
    }
  }
  return rate;
}

double bandwidth(const MeasuredMachine& machine, double& latency_ns) {
  double best = 0;
  for (const MeasuredCollective& each : machine.collectives) {
    if (each.kind != "send") continue;
    best = std::max(best, each.bytes / each.ns * 1e9);
    latency_ns = latency_ns == 0 ? each.ns : std::min(latency_ns, each.ns);
  }
  return best;
}

}  // namespace

std::string profile_text(const MeasuredMachine& machine) {
  const std::string when = "measured by vitrine calibrate, " + wall_time_text();
  const double host_bytes =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  const double f32 = best_rate(machine, "linear", "f32"),
               bf16 = best_rate(machine, "linear", "bf16");
  double latency_ns = 0;
  const double link = bandwidth(machine, latency_ns);
  const double memory = memory_rate(machine);
  const std::string name = format("%s, %d processors", machine.processor.c_str(), machine.cpus);
  const Json card{{"name", name},
                  {"memory_bytes", host_bytes},
                  {"fp32_flops_per_s", f32},
                  {"bf16_flops_per_s", bf16 > 0 ? bf16 : f32},
                  {"memory_bytes_per_s", memory},
                  {"link_bytes_per_s", link},
                  {"source", when}};
  return Json{
      {"name", "cpu"},
      {"card", card},
      // Rates above are those reached, so a large operation reaches all of them.
      {"efficiency",
       {{"era", "measured by vitrine calibrate"},
        {"matmul", 1.0},
        {"memory", 1.0},
        {"launch_ns", 0},
        {"fitted_to", when}}},
      {"links", "switch"},
      {"gpus_per_node", machine.cpus},
      {"link_latency_ns", latency_ns},
      {"host_memory_bytes", host_bytes},
      {"host_flops_per_s", f32},
      {"host_bytes_per_s", memory},
      {"disk_bytes_per_s", std::min(machine.disk_write_bytes_per_s, machine.disk_read_bytes_per_s)},
      {"sources", Json::array({"all: " + when})},
      {"measured", measured_json(machine)}}
      .dump(1);
}

}  // namespace vitrine

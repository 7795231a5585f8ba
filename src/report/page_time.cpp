// Where the time of ranks and steps goes, and ranks side by side.
#include <algorithm>

#include "analysis/statistics.h"
#include "report/page_parts.h"

namespace vitrine {

namespace {

// Idle time while the next batch was waited for is a part of its own on the page.
Json parts_json(const Breakdown& parts, const IdleByCause& idle) {
  const int64_t data = idle[static_cast<size_t>(IdleCause::kDataLoading)];
  return {{"span", parts.span_ns},
          {"compute", parts.compute_ns},
          {"exposed_communication", parts.exposed_communication_ns},
          {"exposed_copy", parts.exposed_copy_ns},
          {"data_wait", data},
          {"idle", parts.idle_ns - data},
          {"communication", parts.communication_ns},
          {"overlap", parts.overlap_ns}};
}

template <typename Name>
Json names(int count, const Name& name) {
  Json out = Json::array();
  for (int i = 0; i < count; ++i) out.push_back(name(i));
  return out;
}

Json step_json(int32_t rank, const StepFacts& step, const PageClock& clock) {
  Json out = parts_json(step.time, step.idle_by_cause);
  out["step"] = step.step;
  out["name"] = step.name;
  out["start"] = clock.at(rank, step.start_ns);
  out["duration"] = step.duration_ns;
  out["phases"] = step.phase_ns;
  out["idle_causes"] = step.idle_by_cause;
  return out;
}

Json measured_json(const JobFacts& job, size_t index) {
  const RankFacts& rank = job.ranks[index];
  std::vector<int64_t> steps;
  for (const auto& step : rank.steps) steps.push_back(step.duration_ns);
  Json out = {{"rank", rank.rank},
              {"source", rank.path.empty() ? rank.source : rank.path},
              {"origin", rank.origin},
              {"device", rank.device},
              {"host", rank.host},
              {"device_work", rank.device_work},
              {"steps", rank.steps.size()},
              {"step", median(std::move(steps))},
              {"launch_delay", rank.launch.delay_median_ns},
              {"launches", rank.launch.launches},
              {"kernels", rank.launch.kernels},
              {"short_kernels", rank.launch.short_kernels},
              {"queue", rank.launch.queue_mean},
              {"tensor_core", rank.tensor_core_ns},
              {"matmul", rank.matmul_ns},
              {"recompute", rank.recompute_ns},
              {"recompute_evidence", rank.recompute_evidence},
              {"flops", rank.flops},
              {"flops_covered", rank.flops_covered},
              {"window", rank.end_ns - rank.begin_ns},
              {"peak", rank.memory.peak_allocated},
              {"profiler", rank.profiler_ns},
              {"to_host", rank.copy_bytes_to_host_device.at(0)},
              {"to_device", rank.copy_bytes_to_host_device.at(1)},
              {"notes", rank.notes}};
  Json counters = Json::array();
  for (const auto& counter : rank.counters) {
    counters.push_back({{"name", counter.name},
                        {"samples", counter.samples},
                        {"min", counter.min},
                        {"mean", counter.mean},
                        {"max", counter.max}});
  }
  out["counters"] = std::move(counters);
  if (index < job.clocks.size()) {
    const RankClock& clock = job.clocks[index];
    out["clock"] = {{"offset", clock.offset_ns},
                    {"uncertainty", clock.uncertainty_ns},
                    {"samples", clock.samples},
                    {"method", clock.method}};
  }
  if (index < job.waits.size()) {
    const RankWaits& waits = job.waits[index];
    out["exposed_wait"] = waits.exposed_wait_ns;
    out["exposed_transfer"] = waits.exposed_transfer_ns;
    out["exposed_unknown"] = waits.unknown_ns;
  }
  return out;
}

}  // namespace

Json time_json(const JobFacts& job, const PageClock& clock) {
  Json ranks = Json::array();
  for (const RankFacts& rank : job.ranks) {
    Json steps = Json::array();
    for (const auto& step : rank.steps) steps.push_back(step_json(rank.rank, step, clock));
    ranks.push_back({{"rank", rank.rank},
                     {"whole", parts_json(rank.total, rank.idle_by_cause)},
                     {"steps", std::move(steps)},
                     {"phases", rank.phase_ns},
                     {"classes", rank.class_ns},
                     {"idle_causes", rank.idle_by_cause},
                     {"idle_what", rank.idle_by_what}});
  }
  return {
      {"phases", names(kPhases, [](int i) { return phase_name(static_cast<Phase>(i)); })},
      {"classes",
       names(kKernelClasses, [](int i) { return kernel_class_name(static_cast<KernelClass>(i)); })},
      {"idle_causes",
       names(kIdleCauses, [](int i) { return idle_cause_name(static_cast<IdleCause>(i)); })},
      {"ranks", std::move(ranks)}};
}

Json ranks_json(const JobFacts& job) {
  Json out = Json::array();
  for (size_t i = 0; i < job.ranks.size(); ++i) out.push_back(measured_json(job, i));
  return out;
}

}  // namespace vitrine

// Reads a step's parts from its facts.
#include "analysis/step_parts.h"

#include <initializer_list>

#include "analysis/statistics.h"

namespace vitrine {
namespace {

int64_t idle_of(const StepFacts& step, std::initializer_list<IdleCause> causes) {
  int64_t sum = 0;
  for (const IdleCause cause : causes) sum += step.idle_by_cause[static_cast<size_t>(cause)];
  return sum;
}

}  // namespace

std::vector<StepPart> step_parts(const StepFacts& step) {
  return {
      {"compute", "compute", step.device.compute_ns},
      {"host",
       "idle because of the host",
       idle_of(step, {IdleCause::kHostLaunch, IdleCause::kHostSync, IdleCause::kRegion})},
      {"input", "loading data", step.data_ns},
      {"copy", "exposed copies", step.device.exposed_copy_ns},
      {"allocator", "calls of the device allocator", step.allocator_ns},
      {"collective", "exposed communication", step.device.exposed_communication_ns},
      {"profiler", "the profiler's own work", idle_of(step, {IdleCause::kProfiler})},
  };
}

std::vector<StepPart> median_parts(const std::vector<const StepFacts*>& steps) {
  if (steps.empty()) return {};
  std::vector<StepPart> result = step_parts(*steps.front());
  for (size_t part = 0; part < result.size(); ++part) {
    std::vector<int64_t> values;
    for (const StepFacts* step : steps) values.push_back(step_parts(*step)[part].ns);
    result[part].ns = median(std::move(values));
  }
  return result;
}

}  // namespace vitrine

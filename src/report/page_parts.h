// The sections of the page's data, each as the typedefs of web/data.js say. Times are nanoseconds
// of the page's clock; durations are nanoseconds, sizes bytes.
#pragma once

#include "core/json.h"
#include "report/page_clock.h"

namespace vitrine {

Json cards_json(const ReportInput& input);
Json time_json(const JobFacts& job, const PageClock& clock);
// What was read and measured of each rank in one row: for the overview and to compare ranks.
Json ranks_json(const JobFacts& job);
Json findings_json(const Diagnosis& diagnosis, const PageClock& clock);
Json stragglers_json(const StragglerFacts& facts);
Json outliers_json(const JobFacts& job, const PageClock& clock);
Json memory_json(const ReportInput& input, const PageClock& clock);
// The largest of any rank; bytes 0 = not known, capacity 0 = not known.
struct MemoryPeak {
  int64_t bytes = 0, capacity = 0;
  int32_t rank = -1;
};
MemoryPeak memory_peak(const ReportInput& input);
Json communication_json(const JobFacts& job, const PageClock& clock);
Json topologies_json(const JobFacts& job);
// Critical paths by rank, those that are known.
Json paths_json(const JobFacts& job);
Json pipeline_json(const PipelineFacts& pipeline, const PageClock& clock);
Json tables_json(const JobFacts& job, const PageClock& clock);

}  // namespace vitrine

// Writes a RankTimeline as Chrome-trace JSON in Kineto's dialect (docs/formats/trace.md), for
// Perfetto, TensorBoard, Holistic Trace Analysis and our own reader.
#pragma once

#include <string>

#include "timeline/timeline.h"

namespace vitrine {

// Gzipped when `path` ends in ".gz". Streams: memory stays small whatever the number of spans.
// Written beside `path` and renamed when whole, so a reader never sees half a file. Times are
// microseconds with three decimals, relative to baseTimeNanoseconds (the start of the day, so that
// equal for all ranks). Throws IoError with the reason of the system (disk full, no such folder,
// ...).
void write_chrome_trace(const RankTimeline& timeline, const std::string& path);

}  // namespace vitrine

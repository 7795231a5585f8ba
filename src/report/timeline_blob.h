// One rank's timeline, compressed for the page.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "timeline/timeline.h"

namespace vitrine {

// Made while the rank's timeline is in memory, so that many ranks need not be held at once.
struct TimelineBlob {
  int32_t rank = 0;
  // Of the first span, in the rank's own clock: times inside are relative to it.
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  int64_t wall_anchor_ns = 0;
  size_t spans_shown = 0, spans_total = 0;
  // Host spans shorter than this are left out, and then device spans shorter than that; 0 = none.
  int64_t host_under_ns = 0, device_under_ns = 0;
  std::vector<uint8_t> kinds;  // SpanKinds that are shown, ascending
  // Base64 of a zlib stream; its layout is in docs/formats/report_page.md.
  std::string base64;
};

struct TimelineBlobOptions {
  // Where a rank has more, the shortest host spans (operators, calls) are left out first, then the
  // shortest device work. Steps and host regions always stay.
  size_t max_spans = 3000000;
  size_t max_bytes = size_t{20} << 20;  // of base64; met by leaving out more spans
};

// A page of `ranks` timelines stays under about 22 MB with these.
TimelineBlobOptions blob_options(size_t ranks);

TimelineBlob encode_timeline(const RankTimeline& timeline, const TimelineBlobOptions& options = {});

}  // namespace vitrine

// Monotonic nanoseconds, and one wall-clock anchor a process to relate ranks.
#pragma once

#include <cstdint>
#include <string>

namespace vitrine {

int64_t now_ns();  // CLOCK_MONOTONIC

struct ClockAnchor {
  int64_t monotonic_ns;  // now_ns() at the anchor
  int64_t wall_ns;       // nanoseconds since the Unix epoch at the same moment
};
// Taken once a process, on first use.
const ClockAnchor& clock_anchor();

// "2026-01-31T12:00:00Z"
std::string wall_time_text();

}  // namespace vitrine

// Clocks.
#include "core/clock.h"

#include <ctime>

namespace vitrine {
namespace {

int64_t read_clock(clockid_t id) {
  timespec t{};
  clock_gettime(id, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

}  // namespace

int64_t now_ns() { return read_clock(CLOCK_MONOTONIC); }

const ClockAnchor& clock_anchor() {
  static const ClockAnchor anchor{now_ns(), read_clock(CLOCK_REALTIME)};
  return anchor;
}

std::string wall_time_text() {
  const time_t now = time(nullptr);
  tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

}  // namespace vitrine

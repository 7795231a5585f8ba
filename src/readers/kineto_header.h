// The parts of a Kineto trace around its events: devices, ranks, process groups, versions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "readers/kineto_draft.h"

namespace vitrine {

// Where scanning of top-level fields stopped.
enum class HeaderStop : uint8_t {
  kEvents,  // behind the bracket that opens the list of events
  kEnd,     // behind the brace that closes the document
  kMore,    // the text ends first; `at` is where to go on with more of it
  kBad      // at something that is not JSON
};

class KinetoHeader {
 public:
  explicit KinetoHeader(KinetoDraft& draft) : draft_(draft) {}

  // Reads the fields that are whole in `text` (followed by json_scan::kPadding zeros) from `at` on,
  // which is behind the opening brace or between two fields, and moves it on.
  HeaderStop scan(std::string_view text, size_t& at);
  bool events_seen() const { return events_seen_; }
  int64_t base_ns() const { return base_ns_; }

  // One field, as scan() meets them.
  void take(std::string_view key, std::string_view value);
  // What the fields say together, once all are read.
  void finish();

 private:
  void read_devices(std::string_view value);
  void read_ranks(std::string_view value);
  void read_merged(std::string_view value);
  void read_own(std::string_view value);
  void read_log(std::string_view value);

  KinetoDraft& draft_;
  bool events_seen_ = false;
  int64_t base_ns_ = 0;
  std::string trace_name_;
};

// "[0, 1]"; a list with "..." left out, or longer than any job, stays unknown.
std::vector<int32_t> ranks_of_text(std::string_view text);

}  // namespace vitrine

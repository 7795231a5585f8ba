// A Chrome trace event by event as it stands in the file: for commands that pass events on. The
// whole (inflated) text is held in memory.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace vitrine {

// Views of the file's text. Tokens are as written: strings keep their quotes; absent ones are
// empty and have no data.
struct RawEvent {
  std::string_view text;  // the whole object
  std::string_view phase, category, name, pid, tid, ts, duration, id;
  std::string_view correlation, external_id, record_correlation;  // of args
};

class RawTrace {
 public:
  // Throws IoError: as open_text_source, and when the text is no whole Chrome trace.
  explicit RawTrace(const std::string& path);
  RawTrace(const RawTrace&) = delete;
  RawTrace& operator=(const RawTrace&) = delete;

  // Events that are no JSON by themselves (raw control characters, bad UTF-8, NaN) would spoil what
  // is written: they are passed over. Returns how many.
  int64_t for_each_event(const std::function<void(const RawEvent&)>& visit) const;
  // The other keys of the file with their values' text, in order.
  const std::vector<std::pair<std::string, std::string>>& header() const { return header_; }
  // baseTimeNanoseconds, 0 where it is missing.
  int64_t base_ns() const { return base_ns_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_, text_;
  std::vector<std::string_view> events_;  // the lists, in text_; some files have two
  std::vector<std::pair<std::string, std::string>> header_;
  int64_t base_ns_ = 0;
};

// A string's token without its quotes; other tokens as they are.
std::string_view unquoted(std::string_view token);

// `event.text` with tokens replaced. Every `token` is a view into it; empty ones are left out.
std::string with_tokens(const RawEvent& event,
                        std::vector<std::pair<std::string_view, std::string>> replacements);

// Times of an event in ns as it stands (relative to base_ns); false when it has none.
bool event_time(const RawEvent& event, int64_t& start_ns, int64_t& duration_ns);

}  // namespace vitrine

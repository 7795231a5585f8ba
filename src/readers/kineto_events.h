// The events of one piece of a Kineto trace, as plain columns with numbers for their texts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "readers/json_scan.h"
#include "readers/kineto_event.h"
#include "readers/kineto_names.h"
#include "readers/raw_strings.h"
#include "timeline/timeline.h"

namespace vitrine {

// How often something was not as it should be, and where first (byte of the whole text).
struct Tally {
  int64_t count = 0;
  uint64_t first = 0;
  void add(uint64_t at) {
    if (count++ == 0) first = at;
  }
  void add(const Tally& other) {
    if (other.count > 0 && count == 0) first = other.first;
    count += other.count;
  }
};

struct KinetoDamage {
  Tally lost;        // events that are no JSON: left out, reading went on at the next
  Tally repaired;    // unescaped quotes: the text up to the quote that ends the value was taken
  Tally controls;    // raw newlines and other control characters in strings: kept
  Tally escapes;     // unknown escapes in strings: kept as they stand
  Tally utf8;        // strings with bytes that are no UTF-8
  Tally no_events;   // entries of the list that are no events: numbers, no name, no time
  Tally negative;    // durations below zero, taken as 0
  Tally never_run;   // device work with time 0 and duration 0
  Tally odd_groups;  // collectives with a group size below 1
  void add(const KinetoDamage& other);
};

// Numbers of texts are those of the parser's RawStrings.
struct KinetoEvents {
  struct Span {
    int64_t start_ns, duration_ns, correlation, bytes;
    uint32_t name, shapes;
    int32_t lane, collective, step;  // collective: index below or -1; step of step spans or -1
    SpanKind kind;
    KinetoCategory category;
    bool announces;  // record_param_comms: the collective of kernels that are launched inside
  };
  struct Arguments {  // of a collective
    uint32_t name, dtype, group, description, ranks;
    int64_t in_elements, out_elements, group_size, sequence, peer, rank, sent_bytes;
  };
  // What our own writer says of a span.
  struct Own {
    uint32_t span, kind, label, block;
    int32_t step, micro_batch;
  };
  struct Counter {
    int64_t time_ns;
    uint32_t pid, name, series;
    double value;
  };
  struct Label {
    enum class Of : uint8_t {
      kThread,
      kProcess,
      kProcessKind
    };  // thread_name, process_name, _labels
    uint32_t pid, tid, text;
    Of of;
  };
  struct Lane {
    std::string pid, tid;
    int64_t device = -1;
  };

  std::vector<Span> spans;
  std::vector<Arguments> arguments;
  std::vector<Own> own;
  std::vector<Counter> counters;
  std::vector<Label> labels;
  std::vector<AllocationEvent> allocations;
  std::vector<uint32_t> allocation_pids;
  // New in this piece; their numbers go on where the last piece of this parser ended.
  std::vector<std::string> strings;
  std::vector<Lane> lanes;
  KinetoDamage damage;
  // Where, in the piece, the list ended (behind its bracket), and where an event begins whose end
  // lies beyond the piece; kNone = neither.
  static constexpr size_t kNone = ~size_t{0};
  size_t list_end = kNone, unfinished = kNone;

  void clear();
};

// Whether an event begins at the brace at `p` (of a text that begins at `begin` and is followed by
// zeros): a guess from what stands around it, right unless lists of objects are nested in events.
bool event_begins(const char* begin, const char* p);

class KinetoEventParser {
 public:
  explicit KinetoEventParser(bool python_functions) : python_functions_(python_functions) {}

  // Events up to the end of the list or of the text, which is followed by json_scan::kPadding
  // zeros. `offset` is the text's place in the whole. An event that goes beyond the text is left
  // to the caller (`unfinished`); with `give_up` the first one is taken for damage instead.
  void parse(std::string_view text, uint64_t offset, bool give_up, KinetoEvents& out);

 private:
  enum class Step : uint8_t { kNext, kStop };
  struct NameFacts {
    SpanKind kernel;  // of a kernel of that name
    bool known, data, announces, is_step;
    int32_t step;
  };

  Step parse_entry(const char*& p, bool give_up);
  void recover(const char*& p);
  json_scan::Outcome parse_event(const char*& p, KinetoEvent& event);
  json_scan::Outcome read_value(const char*& p,
                                std::string_view key,
                                KinetoEvent& event,
                                bool& unwanted);
  json_scan::Outcome read_args(const char*& p, KinetoEvent& event);
  json_scan::Outcome scan_token(const char*& p, std::string_view& text);
  bool wanted(const KinetoEvent& event) const;
  bool wants_args(const KinetoEvent& event) const;
  void take(const KinetoEvent& event, uint64_t at);
  void take_span(const KinetoEvent& event, int64_t start, int64_t duration, uint64_t at);
  int32_t lane_of(const KinetoEvent& event, KinetoCategory category);
  uint32_t number(std::string_view raw, uint64_t at);
  const NameFacts& facts_of(uint32_t name, std::string_view raw);

  const bool python_functions_;
  RawStrings strings_;
  std::vector<NameFacts> facts_;  // by number of the name
  std::vector<KinetoEvents::Lane> lanes_;
  std::unordered_map<std::string, int32_t> lane_numbers_;
  int32_t recent_lanes_[4] = {-1, -1, -1, -1};
  uint64_t repairs_left_ = 100'000;  // each may look far ahead

  // Of the piece at hand.
  KinetoEvents* out_ = nullptr;
  const char *begin_ = nullptr, *end_ = nullptr;
  uint64_t offset_ = 0;
  bool lenient_ = false;
  std::vector<std::pair<std::string_view, std::string_view>> series_;  // of a counter
};

}  // namespace vitrine

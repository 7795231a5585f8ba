// Scanning of events: each once, without a tree, what is not wanted passed over; and how to go on
// where the text is damaged.
#include <cstring>

#include "readers/json_scan.h"
#include "readers/kineto_event.h"
#include "readers/kineto_events.h"

namespace vitrine {

using namespace json_scan;

namespace {

constexpr size_t kLongestMended = 4096;  // an unescaped quote is looked past no further

// "key": at `p`, with a key of moderate length.
bool key_stands_at(const char* p) {
  if (*p != '"') return false;
  const char* q = p + 1;
  while (q - p < 64 && *q != '"' && *q != '\n' && *q != '\0') ++q;
  return *q == '"' && *skip_space(q + 1) == ':';
}

// Whether the quote at `p` can end a value inside an object.
bool ends_value(const char* p) {
  p = skip_space(p + 1);
  if (*p == ',') return key_stands_at(skip_space(p + 1));
  if (*p != '}') return false;
  p = skip_space(p + 1);
  return *p == ',' || *p == '}' || *p == ']' || *p == '\0';
}

// Whether mending gave an event, or merely something between two quotes.
bool is_whole(const KinetoEvent& event) {
  return event.passed_over || event.phase == 'M' || (event.named && !event.ts.empty());
}

bool is_event_key(std::string_view key) {
  for (const char* known :
       {"ph", "cat", "name", "pid", "tid", "ts", "dur", "args", "id", "bp", "s", "tts", "tdur"}) {
    if (key == known) return true;
  }
  return false;
}

// Whether the bracket at `p` ends the list of events rather than one inside an event.
bool list_ends(const char* p, const char* end) {
  p = skip_space(p + 1);
  if (*p == '}') return skip_space(p + 1) >= end;
  if (*p != ',') return false;
  p = skip_space(p + 1);
  for (const std::string_view key : {"\"traceName\"",
                                     "\"displayTimeUnit\"",
                                     "\"baseTimeNanoseconds\"",
                                     "\"deviceProperties\"",
                                     "\"distributedInfo\"",
                                     "\"schemaVersion\"",
                                     "\"mergedRanks\"",
                                     "\"metadata\""}) {
    if (std::strncmp(p, key.data(), key.size()) == 0) return true;
  }
  return false;
}

}  // namespace

bool event_begins(const char* begin, const char* p) {
  const char* q = skip_space(p + 1);
  if (*q != '"') return false;
  const char* key = ++q;
  while (q - key < 5 && *q != '"' && *q != '\0') ++q;
  if (*q != '"' || !is_event_key({key, static_cast<size_t>(q - key)})) return false;
  if (*skip_space(q + 1) != ':') return false;
  do {
    if (p == begin) return true;
    --p;
  } while (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t');
  return *p == ',' || *p == '[';
}

// Which arguments are read, by length of the key first: most are not wanted, and cost no more than
// this.
std::string_view* KinetoEvent::argument(std::string_view key) {
  switch (key.size()) {
    case 3:
      return key == "Seq" ? &sequence : nullptr;
    case 4:
      if (key == "Kind") return &kind;
      if (key == "Step") return &step;
      if (key == "name") return &title;
      if (key == "Rank") return &rank;
      return key == "Addr" ? &address : nullptr;
    case 5:
      if (key == "bytes" || key == "Bytes") return &bytes;
      if (key == "dtype") return &dtype;
      if (key == "Block") return &block;
      return key == "Label" ? &label : nullptr;
    case 6:
      if (key == "device") return &device;
      if (key == "stream") return &stream;
      return key == "labels" ? &labels : nullptr;
    case 8:
      return key == "Src Rank" || key == "Dst Rank" ? &peer : nullptr;
    case 9:
      return key == "Device Id" ? &device : nullptr;
    case 10:
      if (key == "Input Dims" || key == "Input dims") return &shapes;
      if (key == "Group size") return &group_size;
      return key == "Sent bytes" ? &sent_bytes : nullptr;
    case 11:
      if (key == "correlation") return &correlation;
      if (key == "Micro batch") return &micro_batch;
      return key == "Device Type" ? &device_type : nullptr;
    case 13:
      return key == "In msg nelems" ? &in_elements : nullptr;
    case 14:
      if (key == "Out msg nelems") return &out_elements;
      return key == "Total Reserved" ? &reserved : nullptr;
    case 15:
      if (key == "Collective name") return &collective;
      return key == "Total Allocated" ? &allocated : nullptr;
    case 18:
      return key == "Process Group Name" ? &group : nullptr;
    case 19:
      return key == "Process Group Ranks" ? &ranks : nullptr;
    case 25:
      return key == "Process Group Description" ? &description : nullptr;
    default:
      return nullptr;
  }
}

void KinetoEventParser::parse(std::string_view text,
                              uint64_t offset,
                              bool give_up,
                              KinetoEvents& out) {
  out.clear();
  out_ = &out;
  begin_ = text.data(), end_ = begin_ + text.size(), offset_ = offset;
  const size_t lanes_before = lanes_.size();
  const char* p = begin_;
  for (;; give_up = false) {
    p = skip_space(p);
    while (*p == ',') p = skip_space(p + 1);
    if (p >= end_) break;
    if (*p == ']') {
      out.list_end = static_cast<size_t>(p + 1 - begin_);
      break;
    }
    if (parse_entry(p, give_up) == Step::kStop) break;
  }
  out.strings = strings_.take_new();
  out.lanes.assign(lanes_.begin() + static_cast<ptrdiff_t>(lanes_before), lanes_.end());
}

KinetoEventParser::Step KinetoEventParser::parse_entry(const char*& p, bool give_up) {
  const char* start = p;
  const auto at = offset_ + static_cast<uint64_t>(start - begin_);
  Outcome outcome = Outcome::kBad;
  if (*p == '{') {
    KinetoEvent event;
    outcome = parse_event(++p, event);
    if (outcome != Outcome::kOk && (outcome == Outcome::kBad || give_up) && repairs_left_ > 0) {
      --repairs_left_;
      lenient_ = true;
      p = start + 1;
      event = KinetoEvent{};
      const Outcome mended = parse_event(p, event);
      lenient_ = false;
      if (mended == Outcome::kOk && is_whole(event)) {
        out_->damage.repaired.add(at);
        outcome = mended;
      }
    }
    if (outcome == Outcome::kOk) {
      take(event, at);
      return Step::kNext;
    }
  } else {
    outcome = skip_value(p, end_);
    if (outcome == Outcome::kOk) {
      out_->damage.no_events.add(at);
      return Step::kNext;
    }
  }
  if (outcome == Outcome::kIncomplete && !give_up) {
    out_->unfinished = static_cast<size_t>(start - begin_);
    return Step::kStop;
  }
  out_->damage.lost.add(at);
  p = start + 1;
  recover(p);
  return Step::kNext;
}

// To the next event, or to the bracket behind the last one, or to the end.
void KinetoEventParser::recover(const char*& p) {
  for (; p < end_; ++p) {
    if (*p == '{' && event_begins(begin_, p)) return;
    if (*p == ']' && list_ends(p, end_)) return;
  }
}

Outcome KinetoEventParser::parse_event(const char*& p, KinetoEvent& event) {
  const auto fail = [&] { return p >= end_ ? Outcome::kIncomplete : Outcome::kBad; };
  series_.clear();
  event.series = &series_;
  p = skip_space(p);
  if (*p == '}') return ++p, Outcome::kOk;
  for (;;) {
    if (*p != '"') return fail();
    bool special = false;
    const char* key = ++p;
    p = string_end(p, end_, special);
    if (p == nullptr) return p = end_, Outcome::kIncomplete;
    const std::string_view name(key, static_cast<size_t>(p - key));
    p = skip_space(p + 1);
    if (*p != ':') return fail();
    p = skip_space(p + 1);
    bool unwanted = false;
    const Outcome outcome = read_value(p, name, event, unwanted);
    if (outcome != Outcome::kOk) return outcome;
    p = skip_space(p);
    if (unwanted) {
      const Outcome rest = skip_nested(p, end_, '{');
      event.passed_over = true;
      return rest;
    }
    if (*p == '}') break;
    if (*p != ',') return fail();
    p = skip_space(p + 1);
  }
  ++p;
  if (event.args != nullptr && wants_args(event)) {  // stood before what tells whether they matter
    const char* args = event.args;
    return read_args(args, event);
  }
  return Outcome::kOk;
}

// `unwanted`: this value shows that the whole event is not.
Outcome KinetoEventParser::read_value(const char*& p,
                                      std::string_view key,
                                      KinetoEvent& event,
                                      bool& unwanted) {
  std::string_view* into = nullptr;
  switch (key.size()) {
    case 2:
      if (key == "ts") {
        into = &event.ts;
      } else if (key == "ph") {
        std::string_view phase;
        const Outcome outcome = scan_token(p, phase);
        event.phase = phase.empty() ? ' ' : phase[0];
        unwanted = !wanted(event);
        return outcome;
      }
      break;
    case 3:
      if (key == "pid") into = &event.pid;
      if (key == "tid") into = &event.tid;
      if (key == "dur") into = &event.duration;
      if (key == "cat") {
        const Outcome outcome = scan_token(p, event.category);
        unwanted = !wanted(event);
        return outcome;
      }
      break;
    case 4:
      if (key == "name" && *p != '{' && *p != '[') {
        event.named = true;
        const Outcome outcome = scan_token(p, event.name);
        unwanted = !wanted(event);
        return outcome;
      }
      if (key == "args" && *p == '{') {
        if (event.phase != 0 && event.named) {
          if (wants_args(event)) return read_args(p, event);
        } else {
          event.args = p;
        }
      }
      break;
    default:
      break;
  }
  if (into != nullptr) return scan_token(p, *into);
  return skip_value(p, end_);
}

Outcome KinetoEventParser::read_args(const char*& p, KinetoEvent& event) {
  const auto fail = [&] { return p >= end_ ? Outcome::kIncomplete : Outcome::kBad; };
  p = skip_space(p + 1);
  if (*p == '}') return ++p, Outcome::kOk;
  for (;;) {
    if (*p != '"') return fail();
    bool special = false;
    const char* begin = ++p;
    p = string_end(p, end_, special);
    if (p == nullptr) return p = end_, Outcome::kIncomplete;
    const std::string_view key(begin, static_cast<size_t>(p - begin));
    p = skip_space(p + 1);
    if (*p != ':') return fail();
    p = skip_space(p + 1);
    std::string_view* into = event.argument(key);
    std::string_view value;
    const bool nested = *p == '{' || *p == '[';
    // In damaged text every string is looked at with care.
    if (into == nullptr && event.phase != 'C' && !(lenient_ && *p == '"')) {
      if (const Outcome outcome = skip_value(p, end_); outcome != Outcome::kOk) return outcome;
    } else {
      if (const Outcome outcome = scan_token(p, value); outcome != Outcome::kOk) return outcome;
      if (event.phase == 'C') {
        if (!nested) series_.emplace_back(key, value);
      } else if (into != nullptr && (!nested || into == &event.shapes || into == &event.ranks)) {
        *into = value;
      }
    }
    p = skip_space(p);
    if (*p == '}') return ++p, Outcome::kOk;
    if (*p != ',') return fail();
    p = skip_space(p + 1);
  }
}

// A value as it stands in the file, strings without their quotes.
Outcome KinetoEventParser::scan_token(const char*& p, std::string_view& text) {
  if (*p != '"') {
    const char* begin = p;
    const Outcome outcome = skip_value(p, end_);
    text = {begin, static_cast<size_t>(p - begin)};
    return outcome;
  }
  const char* begin = ++p;
  if (!lenient_) {
    bool special = false;
    p = string_end(p, end_, special);
    if (p == nullptr) return p = end_, Outcome::kIncomplete;
  } else {
    while (p < end_ && !(*p == '"' && ends_value(p))) {
      if (*p == '{' && event_begins(begin_, p)) return Outcome::kBad;
      if (static_cast<size_t>(++p - begin) > kLongestMended) return Outcome::kBad;
    }
    if (p >= end_) return Outcome::kIncomplete;
  }
  text = {begin, static_cast<size_t>(p - begin)};
  ++p;
  return Outcome::kOk;
}

bool KinetoEventParser::wanted(const KinetoEvent& event) const {
  switch (event.phase) {
    case 'X':
      return python_functions_ || event.category != "python_function";
    case 'M':
      return !event.named || event.name == "thread_name" || event.name == "process_labels" ||
             event.name == "process_name";
    case 'i':
    case 'I':
      return !event.named || event.name == "[memory]";
    case 'C':
    case 0:
      return true;
    default:
      return false;
  }
}

bool KinetoEventParser::wants_args(const KinetoEvent& event) const { return wanted(event); }

}  // namespace vitrine

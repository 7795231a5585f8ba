// Steps over the text with readers/json_scan.h; positions of tokens are kept, nothing is rebuilt.
#include "inspect/raw_trace.h"

#include <algorithm>

#include "core/error.h"
#include "core/format.h"
#include "core/json.h"
#include "readers/decimal.h"
#include "readers/json_scan.h"
#include "readers/text_source.h"

namespace vitrine {

namespace {

using json_scan::Outcome;
using json_scan::skip_space;
using json_scan::skip_value;

// The reading place in a text; fails with the byte where JSON is left.
class Cursor {
 public:
  Cursor(const std::string& path, std::string_view text)
      : path_(path), begin_(text.data()), end_(begin_ + text.size()), at_(skip_space(begin_)) {}

  char peek() const { return *at_; }
  bool take(char c) {
    if (*at_ != c) return false;
    at_ = skip_space(at_ + 1);
    return true;
  }
  void need(char c) {
    if (!take(c)) fail();
  }
  // A key without its quotes (escapes stay as they are), and the colon behind it.
  std::string_view key() {
    const std::string_view token = value();
    if (token.size() < 2 || token.front() != '"') fail();
    need(':');
    return token.substr(1, token.size() - 2);
  }
  // The text of any value.
  std::string_view value() {
    const char* first = at_;
    if (skip_value(at_, end_) != Outcome::kOk) fail();
    const std::string_view token(first, static_cast<size_t>(at_ - first));
    at_ = skip_space(at_);
    return token;
  }
  // Calls visit() in front of each entry of the object or array that begins here.
  template <typename Visit>
  void each(char open, char close, const Visit& visit) {
    need(open);
    if (take(close)) return;
    do {
      visit();
    } while (take(','));
    need(close);
  }
  [[noreturn]] void fail() const {
    throw IoError(format(
        "%s can't be passed on event by event: at byte %zu of %zu it is no Chrome trace any more. "
        "`vitrine diagnose` reads what is left of a damaged file; to cut or merge, record or "
        "download it again.",
        path_.c_str(),
        static_cast<size_t>(std::min(at_, end_) - begin_),
        static_cast<size_t>(end_ - begin_)));
  }

 private:
  const std::string& path_;
  const char *begin_, *end_, *at_;
};

bool scalar(std::string_view token) { return token.front() != '{' && token.front() != '['; }

void read_args(const std::string& path, std::string_view text, RawEvent& event) {
  if (scalar(text)) return;
  Cursor cursor(path, text);
  cursor.each('{', '}', [&] {
    const std::string_view key = cursor.key(), token = cursor.value();
    if (!scalar(token)) return;
    if (key == "correlation") event.correlation = token;
    if (key == "External id") event.external_id = token;
    if (key == "wait_on_cuda_event_record_corr_id") event.record_correlation = token;
  });
}

RawEvent read_event(const std::string& path, std::string_view text) {
  RawEvent event;
  event.text = text;
  Cursor cursor(path, text);
  cursor.each('{', '}', [&] {
    const std::string_view key = cursor.key(), token = cursor.value();
    if (key == "args") return read_args(path, token, event);
    std::string_view* place = key == "ph"     ? &event.phase
                              : key == "cat"  ? &event.category
                              : key == "name" ? &event.name
                              : key == "pid"  ? &event.pid
                              : key == "tid"  ? &event.tid
                              : key == "ts"   ? &event.ts
                              : key == "dur"  ? &event.duration
                              : key == "id"   ? &event.id
                                              : nullptr;
    if (place != nullptr && scalar(token)) *place = token;
  });
  return event;
}

// Followed by the zeros that the scanner reads beyond the end.
std::string whole_text(const std::string& path) {
  const std::unique_ptr<TextSource> source = open_text_source(path);
  std::string text;
  size_t size = 0;
  for (size_t got = 1; got > 0; size += got) {
    constexpr size_t kBlock = size_t{4} << 20;
    text.resize(std::max(text.size(), size + kBlock));
    got = source->read(text.data() + size, kBlock);
  }
  if (!source->problem().empty()) {
    throw IoError(path + " can't be passed on whole: " + source->problem());
  }
  text.resize(size);
  text.append(json_scan::kPadding, '\0');
  return text;
}

}  // namespace

RawTrace::RawTrace(const std::string& path) : path_(path), text_(whole_text(path)) {
  Cursor cursor(path_, {text_.data(), text_.size() - json_scan::kPadding});
  if (cursor.peek() == '[') {  // the bare list of old viewers
    events_.push_back(cursor.value());
    return;
  }
  cursor.each('{', '}', [&] {
    const std::string_view key = cursor.key(), token = cursor.value();
    if (key == "traceEvents" && token.front() == '[') {
      events_.push_back(token);
    } else if (key == "baseTimeNanoseconds") {
      base_ns_ = first_integer(token);
    } else if (Json::accept(token)) {
      header_.emplace_back(key, token);
    }
  });
  if (events_.empty()) {
    throw IoError(path + " is JSON, but no Chrome trace: it has no \"traceEvents\"");
  }
}

int64_t RawTrace::for_each_event(const std::function<void(const RawEvent&)>& visit) const {
  int64_t damaged = 0;
  for (const std::string_view list : events_) {
    Cursor cursor(path_, list);
    cursor.each('[', ']', [&] {
      const std::string_view entry = cursor.value();
      if (entry.front() != '{' || !Json::accept(entry)) {
        ++damaged;
        return;
      }
      visit(read_event(path_, entry));
    });
  }
  return damaged;
}

std::string_view unquoted(std::string_view token) {
  if (token.size() >= 2 && token.front() == '"') return token.substr(1, token.size() - 2);
  return token;
}

std::string with_tokens(const RawEvent& event,
                        std::vector<std::pair<std::string_view, std::string>> replacements) {
  std::erase_if(replacements, [](const auto& one) { return one.first.empty(); });
  std::sort(replacements.begin(), replacements.end(), [](const auto& a, const auto& b) {
    return a.first.data() < b.first.data();
  });
  std::string out;
  out.reserve(event.text.size() + 32);
  const char* at = event.text.data();
  for (const auto& [token, text] : replacements) {
    out.append(at, token.data());
    out += text;
    at = token.data() + token.size();
  }
  out.append(at, event.text.data() + event.text.size());
  return out;
}

bool event_time(const RawEvent& event, int64_t& start_ns, int64_t& duration_ns) {
  duration_ns = 0;
  if (!microseconds_to_ns(event.ts, start_ns)) return false;
  return event.duration.empty() || microseconds_to_ns(event.duration, duration_ns);
}

}  // namespace vitrine

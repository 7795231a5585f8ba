// From a file to a timeline: what stands before the events, the events in pieces, what follows.
#include "readers/kineto.h"

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "core/error.h"
#include "core/format.h"
#include "readers/file_rank.h"
#include "readers/json_scan.h"
#include "readers/kineto_checks.h"
#include "readers/kineto_finish.h"
#include "readers/kineto_header.h"
#include "readers/kineto_pieces.h"
#include "readers/kineto_ranks.h"
#include "readers/text_source.h"

namespace vitrine {
namespace {

using json_scan::skip_space;

constexpr size_t kHeaderPiece = size_t{64} << 10;
// Metadata behind the events that is larger than this is no metadata.
constexpr size_t kLongestRest = size_t{256} << 20;

class Reader {
 public:
  Reader(TextSource& source, const std::string& path, const KinetoOptions& options)
      : source_(source),
        path_(path),
        options_(options),
        header_(draft_),
        joiner_(draft_, KinetoPieces::parsers(options)) {
    draft_.timeline.source = std::filesystem::path(path).filename().string();
    draft_.rank_in_name = rank_in_file_name(path);
  }

  KinetoDraft read() {
    if (!more()) {
      const std::string problem = source_.problem();
      throw IoError(path_ + (problem.empty() ? " is empty" : " holds no text: " + problem));
    }
    skip_byte_order_mark();
    const char first = *skip_space(text_.view().data());
    if (first == '[') {  // the bare list of old viewers
      at_ = static_cast<size_t>(skip_space(text_.view().data()) - text_.view().data()) + 1;
      read_events();
      if (!cut_) after_end();
    } else if (first == '{') {
      at_ = static_cast<size_t>(skip_space(text_.view().data()) - text_.view().data()) + 1;
      read_object();
    } else {
      refuse_first(first);
    }
    if (const std::string problem = source_.problem(); !problem.empty()) warn(problem);
    if (nothing_read()) warn_of_damage(draft_);  // which is then the reason
    if (nothing_read() && !draft_.timeline.warnings.empty()) {
      throw IoError(path_ + " holds no whole event of a trace: " + draft_.timeline.warnings.back());
    }
    header_.finish();
    return std::move(draft_);
  }

 private:
  void warn(const std::string& text) { draft_.timeline.warnings.push_back(text); }
  bool more() {
    const size_t before = text_.size();
    text_.append(source_, std::max(kHeaderPiece, before));  // twice as much each time
    return text_.size() > before;
  }
  unsigned long long place() const { return begin_ + at_; }
  bool nothing_read() const {
    return draft_.timeline.spans.size() == 0 && draft_.timeline.allocations.empty() &&
           draft_.counters.empty() && draft_.thread_names.empty();
  }

  void skip_byte_order_mark() {
    if (!text_.view().starts_with("\xEF\xBB\xBF")) return;
    text_.erase_front(3);
    begin_ += 3;
  }

  [[noreturn]] void refuse_first(char first) const {
    const std::string_view text = text_.view();
    std::string bytes;
    for (size_t i = 0; i < std::min<size_t>(8, text.size()); ++i) {
      bytes += format("%s%02x", i > 0 ? " " : "", static_cast<unsigned char>(text[i]));
    }
    const bool json = std::isdigit(static_cast<unsigned char>(first)) != 0 || first == '"' ||
                      text.starts_with("true") || text.starts_with("null");
    throw IoError(format(
        "%s is no trace: expected Chrome-trace JSON of PyTorch Profiler or of vitrine train, "
        "which begins with { or [, but it begins with %s (bytes %s)%s",
        path_.c_str(),
        what_it_is(text, json),
        bytes.c_str(),
        text.starts_with("\x89PNG") ? "; give a trace, a folder of traces or a run folder"
                                    : "; was it made by another tool?"));
  }
  static const char* what_it_is(std::string_view text, bool json) {
    if (text.starts_with("\x89PNG")) return "the mark of a PNG picture";
    if (text.starts_with("SQLite format 3")) return "the mark of a SQLite database";
    if (text.starts_with("PK")) return "the mark of a zip archive";
    if (json) return "a single value";
    return "something else";
  }

  void read_object() {
    for (;;) {
      const HeaderStop stop = header_.scan(text_.view(), at_);
      if (stop == HeaderStop::kEvents) {
        read_events();
        if (after_events()) continue;
        return;
      }
      if (stop == HeaderStop::kMore && !ended_ && more()) continue;
      if (stop == HeaderStop::kEnd && header_.events_seen()) return after_end();
      if (stop != HeaderStop::kEnd && !header_.events_seen() && find_events()) continue;
      stopped(stop);
      return;
    }
  }

  // Behind a damaged piece of metadata: whether the list of events can be found all the same.
  bool find_events() {
    if (looked_for_events_) return false;
    looked_for_events_ = true;
    constexpr std::string_view kKey = "\"traceEvents\"";
    for (size_t from = at_;;) {
      const size_t found = text_.view().find(kKey, from);
      if (found != std::string_view::npos) {
        warn(
            format("the metadata before the events are not whole JSON (byte %llu): devices, ranks "
                   "or groups may be missing",
                   place()));
        at_ = found;
        return true;
      }
      from = std::max(at_, text_.size() - std::min(text_.size(), kKey.size()));
      if (ended_ || text_.size() > kLongestRest || !more()) return false;
    }
  }

  void stopped(HeaderStop stop) {
    if (header_.events_seen()) {
      warn(
          format("the metadata behind the events %s at byte %llu: devices, ranks or groups may be "
                 "missing",
                 stop == HeaderStop::kMore ? "are cut" : "are not JSON",
                 place()));
      return;
    }
    if (stop == HeaderStop::kEnd) {
      throw IoError(path_ +
                    " is JSON, but no trace: it has no list \"traceEvents\" (expected Chrome-trace "
                    "JSON of PyTorch Profiler or of vitrine train)");
    }
    const std::string problem = source_.problem();
    throw IoError(
        format("%s is not whole JSON: it %s at byte %llu of its text, before any "
               "\"traceEvents\"%s%s; was it cut, or is it another kind of file?",
               path_.c_str(),
               stop == HeaderStop::kMore ? "ends" : "can't be read on",
               stop == HeaderStop::kMore ? static_cast<unsigned long long>(begin_ + text_.size())
                                         : place(),
               problem.empty() ? "" : "; ",
               problem.c_str()));
  }

  void read_events() {
    text_.erase_front(at_);
    begin_ += at_;
    at_ = 0;
    joiner_.begin();
    KinetoPieces pieces(source_, joiner_, options_);
    begin_ = pieces.run(text_, begin_);
    cut_ = pieces.cut();
    if (cut_) {
      warn(
          format("the list of events ends without its bracket at byte %llu: the file was cut, or "
                 "its writer interrupted; what stands before is kept",
                 static_cast<unsigned long long>(pieces.cut_at())));
    }
  }

  // Nothing but blanks may follow the document.
  void after_end() {
    do {
      at_ = static_cast<size_t>(skip_space(text_.view().data() + at_) - text_.view().data());
    } while (at_ == text_.size() && more());
    if (at_ == text_.size()) return;
    const char next = text_.view()[at_];
    warn(next == '{' || next == '['
             ? format("another JSON document begins behind the trace, at byte %llu: it is not "
                      "read; give every trace as a file of its own",
                      place())
             : format("something that is no part of the trace follows it, at byte %llu: it is "
                      "left out",
                      place()));
  }

  // Takes in the rest of the file, which is small; false when there is none.
  bool after_events() {
    if (cut_) return false;
    while (text_.size() < kLongestRest && more()) {
    }
    ended_ = true;
    return true;
  }

  TextSource& source_;
  const std::string path_;
  const KinetoOptions options_;
  KinetoDraft draft_;
  KinetoHeader header_;
  KinetoJoiner joiner_;
  PaddedText text_;  // from byte begin_ of the whole on
  uint64_t begin_ = 0;
  size_t at_ = 0;
  bool cut_ = false, ended_ = false, looked_for_events_ = false;
};

}  // namespace

RankTimeline read_kineto(const std::string& path, const KinetoOptions& options) {
  const auto source = open_text_source(path);
  return finish_kineto(Reader(*source, path, options).read());
}

std::vector<RankTimeline> read_kineto_ranks(const std::string& path, const KinetoOptions& options) {
  std::vector<RankTimeline> out;
  const auto source = open_text_source(path);
  for (KinetoDraft& draft : split_ranks(Reader(*source, path, options).read()))
    out.push_back(finish_kineto(std::move(draft)));
  return out;
}

RankTimeline read_kineto_text(std::string_view text,
                              const std::string& name,
                              const KinetoOptions& options) {
  if (text.empty()) throw IoError(name + " is empty");
  const auto source = memory_text_source(text);
  return finish_kineto(Reader(*source, name, options).read());
}

std::vector<RankTimeline> read_kineto_ranks_text(std::string_view text,
                                                 const std::string& name,
                                                 const KinetoOptions& options) {
  if (text.empty()) throw IoError(name + " is empty");
  std::vector<RankTimeline> out;
  const auto source = memory_text_source(text);
  for (KinetoDraft& draft : split_ranks(Reader(*source, name, options).read()))
    out.push_back(finish_kineto(std::move(draft)));
  return out;
}

}  // namespace vitrine

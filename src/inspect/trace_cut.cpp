// Two passes: what is where, then what stays.
#include <algorithm>
#include <set>
#include <unordered_set>

#include "core/error.h"
#include "core/format.h"
#include "inspect/merged_ranks.h"
#include "inspect/raw_trace.h"
#include "inspect/trace_edit.h"
#include "readers/decimal.h"
#include "readers/kineto_names.h"
#include "timeline/text_sink.h"

namespace vitrine {

namespace {

struct Window {
  int64_t begin_ns, end_ns;
  bool overlaps(int64_t start, int64_t duration) const {
    return start < end_ns && (start + duration > begin_ns || start >= begin_ns);
  }
};

struct Survey {
  int64_t first_ns = std::numeric_limits<int64_t>::max();
  int64_t last_ns = std::numeric_limits<int64_t>::min();
  int64_t events = 0;
  std::vector<std::pair<int64_t, Window>> steps;
};

Survey survey(const RawTrace& trace) {
  constexpr std::string_view kStep = "ProfilerStep#";
  Survey out;
  trace.for_each_event([&](const RawEvent& event) {
    ++out.events;
    int64_t start = 0, duration = 0;
    if (unquoted(event.phase) == "M" || !event_time(event, start, duration)) return;
    out.first_ns = std::min(out.first_ns, start);
    out.last_ns = std::max(out.last_ns, start + duration);
    const std::string_view name = unquoted(event.name);
    if (name.starts_with(kStep) && !on_device(kineto_category(unquoted(event.category)))) {
      out.steps.push_back(
          {first_integer(name.substr(kStep.size())), Window{start, start + duration}});
    }
  });
  return out;
}

// Stops at the end of int64.
int64_t later(int64_t time, int64_t by) {
  int64_t sum = 0;
  if (!__builtin_add_overflow(time, by, &sum)) return sum;
  return by > 0 ? std::numeric_limits<int64_t>::max() : std::numeric_limits<int64_t>::min();
}

// Windows in order; what one of them overlaps is kept.
class Windows {
 public:
  void add(Window window) { windows_.push_back(window); }
  Window& last() { return windows_.back(); }
  bool empty() const { return windows_.empty(); }
  bool overlaps(int64_t start, int64_t duration) const {
    return std::any_of(windows_.begin(), windows_.end(), [&](const Window& window) {
      return window.overlaps(start, duration);
    });
  }

 private:
  std::vector<Window> windows_;
};

std::string step_list(const std::vector<std::string>& names) {
  constexpr size_t kMost = 20;
  if (names.empty()) return "no step marks (call profiler.step() in the loop)";
  if (names.size() <= kMost) return "steps " + join(names, ", ");
  return "steps " + join({names.begin(), names.begin() + kMost}, ", ") +
         format(" and %zu more", names.size() - kMost);
}

Windows windows_of(const Survey& seen, const CutOptions& options, const std::string& path) {
  Window window{std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()};
  if (options.from_ns != window.begin_ns) window.begin_ns = later(seen.first_ns, options.from_ns);
  if (options.to_ns != window.end_ns) window.end_ns = later(seen.first_ns, options.to_ns);
  Windows out;
  if (options.first_step < 0) return out.add(window), out;
  auto steps = seen.steps;
  std::stable_sort(steps.begin(), steps.end(), [](const auto& a, const auto& b) {
    return a.second.begin_ns < b.second.begin_ns;
  });
  std::vector<std::string> names;
  bool follows = false;  // the step before is kept too
  for (const auto& [number, at] : steps) {
    names.push_back(std::to_string(number));
    const bool kept = number >= options.first_step && number <= options.last_step;
    const Window part{std::max(window.begin_ns, at.begin_ns), std::min(window.end_ns, at.end_ns)};
    if (kept && follows) {
      out.last().end_ns = std::max(out.last().end_ns, part.end_ns);
    } else if (kept) {
      out.add(part);
    }
    follows = kept;
  }
  if (out.empty()) {
    throw ConfigError(format("%s has none of the steps %lld to %lld; it has %s",
                             path.c_str(),
                             static_cast<long long>(options.first_step),
                             static_cast<long long>(options.last_step),
                             step_list(names).c_str()));
  }
  return out;
}

// The processes of the ranks that are asked for, and what stays of the note of merged ranks.
struct Chosen {
  bool all = true;
  std::set<std::string, std::less<>> pids;
  std::string note;

  Chosen(const RawTrace& trace, const std::vector<int32_t>& ranks) {
    if (ranks.empty()) return;
    std::vector<MergedRank> kept;
    std::vector<std::string> there;
    for (const auto& [key, text] : trace.header()) {
      if (key != kMergedRanksKey) continue;
      for (MergedRank& rank : merged_ranks_of(text)) {
        there.push_back(std::to_string(rank.rank));
        if (std::find(ranks.begin(), ranks.end(), rank.rank) == ranks.end()) continue;
        for (const auto& [pid, own] : rank.processes) pids.insert(pid);
        kept.push_back(std::move(rank));
      }
    }
    if (kept.empty()) {
      throw ConfigError(trace.path() +
                        (there.empty() ? " does not say which of its events are of which rank (it "
                                         "was not merged by `vitrine trace merge`): cut the ranks' "
                                         "own files"
                                       : " holds none of the ranks that are asked for; it has " +
                                             join(there, ", ")));
    }
    all = false;
    note = merged_ranks_text(kept);
  }
  bool keeps(const RawEvent& event) const { return all || pids.contains(unquoted(event.pid)); }
};

// Device work launched inside the window, by its correlation.
std::unordered_set<int64_t> launches_in(const RawTrace& trace, const Windows& windows) {
  std::unordered_set<int64_t> out;
  trace.for_each_event([&](const RawEvent& event) {
    int64_t start = 0, duration = 0;
    if (event.correlation.empty() || on_device(kineto_category(unquoted(event.category)))) return;
    if (event_time(event, start, duration) && windows.overlaps(start, duration)) {
      out.insert(first_integer(event.correlation));
    }
  });
  return out;
}

}  // namespace

CutResult cut_trace(const std::string& path, const CutOptions& options, const std::string& output) {
  const RawTrace trace(path);
  const Survey seen = survey(trace);
  if (seen.events == 0) throw ConfigError(path + " has no events: there is nothing to cut");
  const Chosen chosen(trace, options.ranks);
  const Windows windows = windows_of(seen, options, path);
  const bool by_step = options.first_step >= 0;
  const std::unordered_set<int64_t> launched =
      by_step ? launches_in(trace, windows) : std::unordered_set<int64_t>{};
  const auto keeps = [&](const RawEvent& event) {
    int64_t start = 0, duration = 0;
    if (!event_time(event, start, duration)) return false;
    const bool device = on_device(kineto_category(unquoted(event.category)));
    if (by_step && device && !event.correlation.empty()) {
      return launched.contains(first_integer(event.correlation));
    }
    // A flow's arrow has the launch's number as its id.
    if (by_step && unquoted(event.category) == "ac2g" && !event.id.empty()) {
      return launched.contains(first_integer(event.id));
    }
    return windows.overlaps(start, duration);
  };

  TextSink sink(output);
  sink << "{\n";
  for (const auto& [key, text] : trace.header()) {
    const bool note = !chosen.all && key == kMergedRanksKey;
    sink << "\"" << key << "\": " << (note ? chosen.note : text) << ",\n";
  }
  if (trace.base_ns() != 0) sink << "\"baseTimeNanoseconds\": " << trace.base_ns() << ",\n";
  sink << "\"traceEvents\": [";
  CutResult result;
  result.events_total = seen.events;
  int64_t timed = 0;
  const char* separator = "\n";
  result.events_damaged = trace.for_each_event([&](const RawEvent& event) {
    const bool name = unquoted(event.phase) == "M";
    if (!chosen.keeps(event) || (!name && !keeps(event))) return;
    timed += name ? 0 : 1;
    ++result.events_kept;
    sink << separator << event.text;
    separator = ",\n";
  });
  if (timed == 0) {
    throw ConfigError(path + ": nothing happens in the part that was asked for; its events span " +
                      (seen.first_ns > seen.last_ns
                           ? std::string("no time")
                           : format_ns(static_cast<double>(seen.last_ns - seen.first_ns))) +
                      " from the first one on");
  }
  sink << "\n]\n}\n";
  sink.finish();
  return result;
}

}  // namespace vitrine

// Two passes: what is where, then what stays.
#include <algorithm>
#include <unordered_set>

#include "core/error.h"
#include "core/format.h"
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

Window window_of(const Survey& seen, const CutOptions& options, const std::string& path) {
  Window window{std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()};
  if (options.from_ns != window.begin_ns) window.begin_ns = later(seen.first_ns, options.from_ns);
  if (options.to_ns != window.end_ns) window.end_ns = later(seen.first_ns, options.to_ns);
  if (options.first_step < 0) return window;
  Window steps{std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()};
  std::vector<std::string> names;
  for (const auto& [number, at] : seen.steps) {
    names.push_back(std::to_string(number));
    if (number < options.first_step || number > options.last_step) continue;
    steps.begin_ns = std::min(steps.begin_ns, at.begin_ns);
    steps.end_ns = std::max(steps.end_ns, at.end_ns);
  }
  if (steps.begin_ns > steps.end_ns) {
    throw ConfigError(format("%s has none of the steps %lld to %lld; it has %s",
                             path.c_str(),
                             static_cast<long long>(options.first_step),
                             static_cast<long long>(options.last_step),
                             names.empty() ? "no step marks (call profiler.step() in the loop)"
                                           : ("steps " + join(names, ", ")).c_str()));
  }
  return {std::max(window.begin_ns, steps.begin_ns), std::min(window.end_ns, steps.end_ns)};
}

// Device work launched inside the window, by its correlation.
std::unordered_set<int64_t> launches_in(const RawTrace& trace, const Window& window) {
  std::unordered_set<int64_t> out;
  trace.for_each_event([&](const RawEvent& event) {
    int64_t start = 0, duration = 0;
    if (event.correlation.empty() || on_device(kineto_category(unquoted(event.category)))) return;
    if (event_time(event, start, duration) && window.overlaps(start, duration)) {
      out.insert(first_integer(event.correlation));
    }
  });
  return out;
}

}  // namespace

CutResult cut_trace(const std::string& path, const CutOptions& options, const std::string& output) {
  const RawTrace trace(path);
  const Survey seen = survey(trace);
  const Window window = window_of(seen, options, path);
  const bool by_step = options.first_step >= 0;
  const std::unordered_set<int64_t> launched =
      by_step ? launches_in(trace, window) : std::unordered_set<int64_t>{};
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
    return window.overlaps(start, duration);
  };

  TextSink sink(output);
  sink << "{\n";
  for (const auto& [key, text] : trace.header()) sink << "\"" << key << "\": " << text << ",\n";
  if (trace.base_ns() != 0) sink << "\"baseTimeNanoseconds\": " << trace.base_ns() << ",\n";
  sink << "\"traceEvents\": [";
  CutResult result;
  result.events_total = seen.events;
  int64_t timed = 0;
  const char* separator = "\n";
  result.events_damaged = trace.for_each_event([&](const RawEvent& event) {
    const bool name = unquoted(event.phase) == "M";
    if (!name && !keeps(event)) return;
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

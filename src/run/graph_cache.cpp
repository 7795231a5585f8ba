// When an action is captured, replayed, or left as it is.
#include "run/graph_cache.h"

#include <algorithm>
#include <utility>

#include "core/clock.h"
#include "core/error.h"

namespace vitrine {
namespace {

// While the device takes longer than this many times what the host needed to issue, the host stays
// ahead, and a graph would gain nothing.
constexpr int64_t kHostStaysAhead = 2;
// A graph's launch costs the host as much as a few kernels' do.
constexpr int64_t kLaunchNs = 10'000;

}  // namespace

const char* graphs_name(Graphs graphs) {
  return graphs == Graphs::kOff ? "off" : graphs == Graphs::kOn ? "on" : "auto";
}

Graphs graphs_from_name(std::string_view name) {
  for (const Graphs graphs : {Graphs::kOff, Graphs::kAuto, Graphs::kOn}) {
    if (name == graphs_name(graphs)) return graphs;
  }
  throw ConfigError("graphs: off, auto or on, got \"" + std::string(name) + "\"");
}

GraphCounts& GraphCounts::operator+=(const GraphCounts& other) {
  issued += other.issued;
  replayed += other.replayed;
  captured += other.captured;
  refused += other.refused;
  if (why_refused.empty()) why_refused = other.why_refused;
  return *this;
}

GraphCache::GraphCache(Device& device, bool measured, int64_t micro_batches)
    : device_(device),
      measured_(measured),
      keys_(static_cast<size_t>(
          std::clamp<int64_t>(kKeysAMicroBatch * micro_batches, 1, kMostKeys))) {}

GraphCache::Entry& GraphCache::entry_of(Action& action, GraphKey key) {
  auto& entries = action.entries;
  auto it = std::find_if(
      entries.begin(), entries.end(), [&](const Entry& entry) { return entry.key == key; });
  if (it == entries.end()) {
    if (entries.size() == keys_) {
      if (entries.back().work) retired_.push_back(std::move(entries.back().work));
      entries.pop_back();
    }
    entries.push_back({std::move(key), false, nullptr});
    it = entries.end() - 1;
  }
  std::rotate(entries.begin(), it, it + 1);
  return entries.front();
}

void GraphCache::measure(Action& action, const std::function<void()>& issue) {
  action.from = device_.timed_point();
  const int64_t start = now_ns();
  issue();
  action.host_ns = now_ns() - start;
  action.to = device_.timed_point();
  action.verdict = Verdict::kMeasuring;
}

// Where the host is the slower one, kernels wait for it, and both times are about the same.
void GraphCache::judge(Action& action) {
  if (!device_.passed(action.to)) return;
  const int64_t device_ns = device_.elapsed_ns(action.from, action.to);
  action.from.reset();
  action.to.reset();
  const bool pays = device_ns < kHostStaysAhead * action.host_ns && action.host_ns > kLaunchNs;
  action.verdict = pays ? Verdict::kCapture : Verdict::kIssue;
}

bool GraphCache::capture(Action& action, Entry& entry, const std::function<void()>& issue) {
  std::string why;
  entry.work = device_.capture_work(issue, why);
  if (entry.work) {
    ++action.captures;
    ++counts_.captured;
    return true;
  }
  action.verdict = Verdict::kIssue;
  ++counts_.refused;
  if (counts_.why_refused.empty()) counts_.why_refused = why;
  return false;
}

void GraphCache::run(int number, GraphKey key, const std::function<void()>& issue) {
  Action& action = actions_[number];
  if (action.verdict == Verdict::kUnknown && !measured_) action.verdict = Verdict::kCapture;
  if (action.verdict == Verdict::kMeasuring) judge(action);
  if (action.verdict == Verdict::kIssue) {
    ++counts_.issued;
    return issue();
  }
  Entry& entry = entry_of(action, std::move(key));
  const bool seen = std::exchange(entry.seen, true);
  const int most = kCapturesAKey * static_cast<int>(keys_);
  const bool replay = entry.work || (seen && action.verdict == Verdict::kCapture &&
                                     action.captures < most && capture(action, entry, issue));
  if (replay) {
    ++counts_.replayed;
    return entry.work->issue();
  }
  ++counts_.issued;
  if (seen && action.verdict == Verdict::kUnknown) return measure(action, issue);
  issue();
}

}  // namespace vitrine

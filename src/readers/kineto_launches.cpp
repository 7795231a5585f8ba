// An open table of launches, and the sorting out of colliding numbers.
#include "readers/kineto_launches.h"

#include <algorithm>
#include <bit>
#include <map>
#include <unordered_map>

#include "core/format.h"

namespace vitrine {
namespace {

constexpr int32_t kMostProcesses = 64;  // beyond them the last stands for all
constexpr int32_t kAny = -1;

size_t slot_of(int64_t correlation, size_t mask) {
  return (static_cast<uint64_t>(correlation) * 0x9E3779B97F4A7C15ull >> 20) & mask;
}

}  // namespace

KinetoLaunches::KinetoLaunches(KinetoDraft& draft) : draft_(draft) {
  const auto& lanes = draft.timeline.lanes;
  std::map<std::string, int32_t> numbers;
  for (size_t i = 0; i < lanes.size(); ++i) {
    device_.push_back(lanes[i].device);
    process_of_lane_.push_back(-1);
  }
  const Spans& spans = draft.timeline.spans;
  for (size_t i = 0; i < spans.size(); ++i) {
    if (!is_launch(i)) continue;
    int32_t& process = process_of_lane_[static_cast<size_t>(spans.lane[i])];
    if (process >= 0) continue;
    const std::string& pid = draft.lane_keys[static_cast<size_t>(spans.lane[i])].pid;
    const auto count = static_cast<int32_t>(processes_.size());
    const auto [it, added] = numbers.try_emplace(pid, std::min(count, kMostProcesses - 1));
    if (added && count < kMostProcesses) processes_.push_back(pid);
    process = it->second;
  }
  index();
  if (collide_) separate();
}

bool KinetoLaunches::is_launch(size_t span) const {
  const Spans& spans = draft_.timeline.spans;
  return spans.kind[span] == SpanKind::kRuntime && spans.correlation[span] != 0 &&
         device_[static_cast<size_t>(spans.lane[span])] == 0;
}

// The first call of a process with a number counts: an inner one of the driver repeats it.
void KinetoLaunches::index() {
  const Spans& spans = draft_.timeline.spans;
  size_t count = 0;
  for (size_t i = 0; i < spans.size(); ++i) count += is_launch(i);
  slots_.assign(std::bit_ceil(std::max<size_t>(16, count * 2)), kNone);
  const size_t mask = slots_.size() - 1;
  for (size_t i = 0; i < spans.size(); ++i) {
    if (!is_launch(i)) continue;
    const int32_t process = process_of_lane_[static_cast<size_t>(spans.lane[i])];
    size_t slot = slot_of(spans.correlation[i], mask);
    bool known = false;
    for (; slots_[slot] != kNone; slot = (slot + 1) & mask) {
      if (spans.correlation[slots_[slot]] != spans.correlation[i]) continue;
      const auto other = static_cast<size_t>(spans.lane[slots_[slot]]);
      if (process_of_lane_[other] == process) {
        known = true;
        break;
      }
      collide_ = true;
    }
    if (!known) slots_[slot] = static_cast<uint32_t>(i);
  }
}

uint32_t KinetoLaunches::find(int64_t correlation, int32_t process) const {
  const Spans& spans = draft_.timeline.spans;
  const size_t mask = slots_.size() - 1;
  for (size_t slot = slot_of(correlation, mask); slots_[slot] != kNone; slot = (slot + 1) & mask) {
    const uint32_t span = slots_[slot];
    if (spans.correlation[span] != correlation) continue;
    if (process == kAny || process_of_lane_[static_cast<size_t>(spans.lane[span])] == process)
      return span;
  }
  return kNone;
}

uint32_t KinetoLaunches::launch_of(size_t span) const {
  const int64_t correlation = draft_.timeline.spans.correlation[span];
  return correlation == 0 ? kNone : find(correlation, kAny);
}

void KinetoLaunches::separate() {
  Spans& spans = draft_.timeline.spans;
  const auto processes = static_cast<int32_t>(processes_.size());
  // The candidate that was launched last before the work began.
  const auto nearest = [&](size_t span) {
    uint32_t best = kNone;
    for (int32_t process = 0; process < processes; ++process) {
      const uint32_t launch = find(spans.correlation[span], process);
      if (launch == kNone || spans.start_ns[launch] > spans.start_ns[span]) continue;
      if (best == kNone || spans.start_ns[launch] > spans.start_ns[best]) best = launch;
    }
    return best;
  };
  const auto process_of = [&](uint32_t launch) {
    return process_of_lane_[static_cast<size_t>(spans.lane[launch])];
  };
  // Votes of each card (by its pid in the file). Numbers of one process alone weigh more.
  std::map<std::string, std::vector<int64_t>> votes;
  for (size_t i = 0; i < spans.size(); ++i) {
    const auto lane = static_cast<size_t>(spans.lane[i]);
    if (device_[lane] == 0 || spans.correlation[i] == 0) continue;
    int32_t owners = 0, only = 0;
    for (int32_t process = 0; process < processes && owners < 2; ++process) {
      if (find(spans.correlation[i], process) != kNone) ++owners, only = process;
    }
    if (owners == 0) continue;
    auto& counts = votes[draft_.lane_keys[lane].pid];
    counts.resize(static_cast<size_t>(processes));
    if (owners == 1) {
      counts[static_cast<size_t>(only)] += 1000;
    } else if (const uint32_t launch = nearest(i); launch != kNone) {
      counts[static_cast<size_t>(process_of(launch))] += 1;
    }
  }
  // A card of several processes (all ranks' cards have number 0): each launch by itself.
  std::map<std::string, int32_t> owner;
  for (const auto& [pid, counts] : votes) {
    const auto most = std::max_element(counts.begin(), counts.end());
    int64_t all = 0;
    for (const int64_t count : counts) all += count;
    owner[pid] = *most * 10 >= all * 9 ? static_cast<int32_t>(most - counts.begin()) : kAny;
  }
  std::vector<uint32_t> launches(spans.size(), kNone);
  for (size_t i = 0; i < spans.size(); ++i) {
    const auto lane = static_cast<size_t>(spans.lane[i]);
    if (device_[lane] == 0 || spans.correlation[i] == 0) continue;
    const auto it = owner.find(draft_.lane_keys[lane].pid);
    const int32_t process = it == owner.end() ? kAny : it->second;
    uint32_t launch = process == kAny ? nearest(i) : find(spans.correlation[i], process);
    if (launch == kNone) launch = find(spans.correlation[i], kAny);
    launches[i] = launch;
  }
  // New numbers for all processes but the first: unique, since they are counted from above all.
  std::unordered_map<int64_t, int64_t> renamed[kMostProcesses];
  int64_t next = 0;
  for (const int64_t number : spans.correlation) {
    if (number < INT64_MAX / 2) next = std::max(next, number);
  }
  const auto rename = [&](int32_t process, int64_t number) {
    const auto [it, added] = renamed[process].try_emplace(number, next + 1);
    if (added) ++next;
    return it->second;
  };
  for (size_t i = 0; i < spans.size(); ++i) {
    if (device_[static_cast<size_t>(spans.lane[i])] == 0 || launches[i] == kNone) continue;
    if (const int32_t process = process_of(launches[i]); process > 0)
      spans.correlation[i] = rename(process, spans.correlation[i]);
  }
  for (size_t i = 0; i < spans.size(); ++i) {
    const auto lane = static_cast<size_t>(spans.lane[i]);
    if (device_[lane] == 0 && process_of_lane_[lane] > 0 && spans.correlation[i] != 0)
      spans.correlation[i] = rename(process_of_lane_[lane], spans.correlation[i]);
  }
  index();
}

void KinetoLaunches::warn() const {
  auto& warnings = draft_.timeline.warnings;
  const Spans& spans = draft_.timeline.spans;
  int64_t work = 0, unlaunched = 0, before = 0, farthest = 0;
  std::vector<bool> answered(spans.size());  // launches that device work belongs to
  for (size_t i = 0; i < spans.size(); ++i) {
    if (device_[static_cast<size_t>(spans.lane[i])] == 0) continue;
    if (spans.kind[i] != SpanKind::kKernel && spans.kind[i] != SpanKind::kCopy &&
        !is_communication(spans.kind[i])) {
      continue;
    }
    ++work;
    const uint32_t launch = launch_of(i);
    if (launch == kNone) {
      ++unlaunched;
      continue;
    }
    answered[launch] = true;
    if (spans.start_ns[i] < spans.start_ns[launch]) {
      ++before;
      farthest = std::max(farthest, spans.start_ns[launch] - spans.start_ns[i]);
    }
  }
  int64_t launches = 0, unanswered = 0;
  std::vector<int8_t> is_launch_name(draft_.timeline.strings.size(), -1);
  for (size_t i = 0; i < spans.size(); ++i) {
    if (!is_launch(i)) continue;
    int8_t& launches_kernel = is_launch_name[spans.name[i]];
    if (launches_kernel < 0) {
      const std::string& name = draft_.timeline.strings[spans.name[i]];
      launches_kernel = name.find("LaunchKernel") != std::string::npos;
    }
    if (launches_kernel == 0) continue;
    ++launches;
    unanswered += !answered[i];
  }
  if (before > 0) {
    warnings.push_back(format(
        "%lld of %lld kernels and copies begin before the call that launched them, by up to %lld "
        "ns: the clocks of host and device are not aligned, and launch delays not to be trusted",
        static_cast<long long>(before),
        static_cast<long long>(work),
        static_cast<long long>(farthest)));
  }
  if (unlaunched * 100 > work) {
    warnings.push_back(format(
        "%lld of %lld kernels and copies have no recorded launch: their step and cause are known "
        "by time alone",
        static_cast<long long>(unlaunched),
        static_cast<long long>(work)));
  }
  // At the ends of a recording some are always missing.
  if (work > 0 && unanswered > 10 && unanswered * 20 > launches) {
    warnings.push_back(
        format("%lld of %lld kernel launches have no kernel: the profiler lost device work",
               static_cast<long long>(unanswered),
               static_cast<long long>(launches)));
  }
  if (processes_.size() > 1) {
    warnings.push_back(
        format("%zu processes launch work in this file%s: it seems to be merged of several ranks, "
               "and is read as one",
               processes_.size(),
               collide_ ? ", and use the same correlation numbers for different launches" : ""));
  }
}

}  // namespace vitrine

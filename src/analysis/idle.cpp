// Gaps of the device, split by what the launching thread did.
#include "analysis/idle.h"

#include <algorithm>
#include <limits>
#include <unordered_map>

namespace vitrine {
namespace {

constexpr int64_t kLatencyNs = 10000;
class Splitter {
 public:
  Splitter(const HostWalk& host, std::vector<IdlePiece>& out) : host_(host), out_(out) {}

  void gap(Interval gap, const DeviceSpan* before, const DeviceSpan* after) {
    opens_ = true;
    const Launch* launch = launch_of(after);
    if (launch != nullptr && before != nullptr && before->launch == after->launch &&
        launch->device_spans > 1) {
      return add(gap, IdleCause::kGraphReplay, kNoString);
    }
    if (launch == nullptr && after != nullptr) return unknown(gap);
    const int64_t launched =
        launch == nullptr ? gap.end : std::clamp(launch->begin, gap.begin, gap.end);
    if (launched > gap.begin) {
      begin_of_gap({gap.begin, launched}, launch == nullptr ? host_.main_lane : launch->lane);
    }
    if (launch == nullptr) return;
    // The call itself, the time until the device begins, and what is longer than either should be.
    const int64_t usual = std::clamp(launch->begin + kLatencyNs, launched, gap.end);
    const int64_t called = std::clamp(launch->end, usual, gap.end);
    const int64_t late = std::clamp(launch->end + kLatencyNs, launched, gap.end);
    add({launched, usual}, IdleCause::kHostLaunch, kWhatLatency);
    add({usual, called}, IdleCause::kHostLaunch, launch->name);
    add({called, late}, IdleCause::kHostLaunch, kWhatLatency);
    add({late, gap.end},
        IdleCause::kStreamWait,
        gap.end - gap.begin <= kLatencyNs ? kWhatBetween : kNoString);
  }

 private:
  const Launch* launch_of(const DeviceSpan* span) const {
    if (span == nullptr || span->launch < 0) return nullptr;
    return &host_.launches[static_cast<size_t>(span->launch)];
  }

  void add(Interval part, IdleCause cause, uint32_t what) {
    if (part.begin >= part.end) return;
    IdlePiece* last = opens_ ? nullptr : &out_.back();
    if (last != nullptr && last->cause == cause && last->what == what) {
      last->end = part.end;
    } else {
      out_.push_back({part.begin, part.end, what, cause, opens_});
    }
    opens_ = false;
  }

  // No launch is known. Where no launches are recorded at all, the main thread's waits still tell
  // something; else this work was launched before the recording began, whatever the host did since.
  void unknown(Interval gap) {
    if (host_.launches.empty() && host_.main_lane >= 0) {
      const auto& segments = host_.segments[static_cast<size_t>(host_.main_lane)];
      for (auto it = first_after(gap.begin, host_.main_lane);
           it != segments.end() && it->begin < gap.end;
           ++it) {
        if (!state(*it).counts) continue;
        const Interval inside{std::max(gap.begin, it->begin), std::min(gap.end, it->end)};
        add({gap.begin, inside.begin}, IdleCause::kUnknown, kNoString);
        add(inside, cause_of(state(*it).doing), state(*it).what);
        gap.begin = inside.end;
      }
    }
    add(gap, IdleCause::kUnknown, kNoString);
  }

  void begin_of_gap(Interval part, int32_t lane) {
    credit_ = 0;
    for (const int32_t each : {lane, host_.main_lane}) {
      const HostSegment* waiting = wait_at(part.begin, each);
      if (waiting == nullptr || part.begin - waiting->begin <= credit_) continue;
      credit_ = part.begin - waiting->begin;
      credit_what_ = state(*waiting).what;
    }
    host_part(part, lane, lane != host_.main_lane);
  }

  const HostState& state(const HostSegment& segment) const {
    return host_.states[static_cast<size_t>(segment.state)];
  }
  std::vector<HostSegment>::const_iterator first_after(int64_t at, int32_t lane) const {
    const auto& segments = host_.segments[static_cast<size_t>(lane)];
    return std::partition_point(
        segments.begin(), segments.end(), [at](const HostSegment& s) { return s.end <= at; });
  }
  const HostSegment* wait_at(int64_t at, int32_t lane) const {
    if (lane < 0) return nullptr;
    const auto it = first_after(at, lane);
    if (it == host_.segments[static_cast<size_t>(lane)].end() || it->begin >= at) return nullptr;
    return state(*it).doing == Doing::kSync && state(*it).counts ? &*it : nullptr;
  }

  // What the lane did in `part`; where it did nothing of note, what the main thread did.
  void host_part(Interval part, int32_t lane, bool then_main) {
    if (lane >= 0) {
      const auto& segments = host_.segments[static_cast<size_t>(lane)];
      for (auto it = first_after(part.begin, lane); it != segments.end() && it->begin < part.end;
           ++it) {
        const Interval inside{std::max(part.begin, it->begin), std::min(part.end, it->end)};
        if (!state(*it).counts) continue;
        plain_part({part.begin, inside.begin}, then_main);
        add(inside, cause_of(state(*it).doing), state(*it).what);
        part.begin = inside.end;
      }
    }
    plain_part(part, then_main);
  }

  static IdleCause cause_of(Doing doing) {
    switch (doing) {
      case Doing::kSync:
        return IdleCause::kHostSync;
      case Doing::kData:
        return IdleCause::kDataLoading;
      case Doing::kRegion:
        return IdleCause::kRegion;
      default:
        return IdleCause::kHostLaunch;
    }
  }

  void plain_part(Interval part, bool then_main) {
    if (part.begin >= part.end) return;
    if (then_main) return host_part(part, host_.main_lane, false);
    const IntervalSet overhead = host_.profiler.clip(part);
    for (const Interval& own : overhead.intervals()) {
      code_part({part.begin, own.begin});
      add(own, IdleCause::kProfiler, kNoString);
      part.begin = own.end;
    }
    code_part(part);
  }

  void code_part(Interval part) {
    const int64_t owed = std::clamp<int64_t>(part.end - part.begin, 0, credit_);
    add({part.begin, part.begin + owed}, IdleCause::kHostSync, credit_what_);
    credit_ -= owed;
    add({part.begin + owed, part.end}, IdleCause::kHostLaunch, kNoString);
  }

  const HostWalk& host_;
  std::vector<IdlePiece>& out_;
  bool opens_ = true;   // the next piece is the first of its gap
  int64_t credit_ = 0;  // how far ahead the host would still be, had it not waited
  uint32_t credit_what_ = kNoString;
};

template <typename Visit>
void visit(const std::vector<IdlePiece>& pieces, Interval window, Visit&& each) {
  auto it = std::partition_point(pieces.begin(), pieces.end(), [&](const IdlePiece& piece) {
    return piece.end <= window.begin;
  });
  for (; it != pieces.end() && it->begin < window.end; ++it) {
    const int64_t length = std::min(it->end, window.end) - std::max(it->begin, window.begin);
    if (length > 0) each(*it, length);
  }
}

}  // namespace

std::string what_text(const RankTimeline& timeline, uint32_t what) {
  if (what == kWhatLatency) return "launch latency";
  if (what == kWhatBetween) return "between kernels";
  return timeline.strings[what];
}

std::vector<IdlePiece> idle_pieces(const HostWalk& host,
                                   const std::vector<DeviceSpan>& device,
                                   Interval range) {
  std::vector<IdlePiece> out;
  Splitter splitter(host, out);
  int64_t busy_until = range.begin;
  const DeviceSpan* last = nullptr;  // the one that ended latest
  for (const DeviceSpan& span : device) {
    if (span.begin >= span.end) continue;
    if (span.begin > busy_until) splitter.gap({busy_until, span.begin}, last, &span);
    if (span.end >= busy_until) busy_until = span.end, last = &span;
  }
  if (range.end > busy_until) splitter.gap({busy_until, range.end}, last, nullptr);
  return out;
}

IdleByCause idle_by_cause(const std::vector<IdlePiece>& pieces, Interval window) {
  IdleByCause out{};
  visit(pieces, window, [&](const IdlePiece& piece, int64_t length) {
    out[static_cast<size_t>(piece.cause)] += length;
  });
  return out;
}

std::map<std::string, int64_t> idle_by_what(const RankTimeline& timeline,
                                            const std::vector<IdlePiece>& pieces,
                                            Interval window,
                                            bool with_cause,
                                            size_t most) {
  std::unordered_map<uint64_t, int64_t> sums;
  visit(pieces, window, [&](const IdlePiece& piece, int64_t length) {
    if (piece.what == kNoString && !with_cause) return;
    sums[static_cast<uint64_t>(piece.cause) << 32 | piece.what] += length;
  });
  std::vector<std::pair<int64_t, uint64_t>> order;
  for (const auto& [key, sum] : sums) order.emplace_back(sum, key);
  std::sort(order.rbegin(), order.rend());
  std::map<std::string, int64_t> out;
  for (const auto& [sum, key] : order) {
    if (out.size() == most) break;
    const std::string what = what_text(timeline, static_cast<uint32_t>(key));
    const std::string cause = idle_cause_name(static_cast<IdleCause>(key >> 32));
    out[!with_cause ? what : what.empty() ? cause : cause + ": " + what] += sum;
  }
  return out;
}

std::vector<Gap> longest_gaps(const RankTimeline& timeline,
                              const HostWalk& host,
                              const std::vector<DeviceSpan>& device,
                              const std::vector<IdlePiece>& pieces,
                              Interval window) {
  constexpr size_t kMost = 100;
  struct Candidate {
    size_t first, end;  // pieces
    Interval inside;    // the window
    int64_t length() const { return inside.end - inside.begin; }
  };
  std::vector<Candidate> gaps;
  const auto longer = [](const Candidate& a, const Candidate& b) {
    return a.length() != b.length() ? a.length() > b.length() : a.first < b.first;
  };
  for (size_t i = 0; i < pieces.size();) {
    size_t end = i + 1;
    while (end < pieces.size() && !pieces[end].opens_gap) ++end;
    const Interval inside{std::max(pieces[i].begin, window.begin),
                          std::min(pieces[end - 1].end, window.end)};
    if (inside.begin < inside.end) gaps.push_back({i, end, inside});
    if (gaps.size() == 100 * kMost) {
      std::nth_element(gaps.begin(), gaps.begin() + kMost, gaps.end(), longer);
      gaps.resize(kMost);
    }
    i = end;
  }
  const auto middle = gaps.begin() + static_cast<ptrdiff_t>(std::min(kMost, gaps.size()));
  std::partial_sort(gaps.begin(), middle, gaps.end(), longer);
  gaps.erase(middle, gaps.end());
  std::vector<Gap> out;
  for (const Candidate& candidate : gaps) {
    std::map<std::pair<IdleCause, uint32_t>, int64_t> parts;
    IdleByCause causes{};
    for (size_t i = candidate.first; i < candidate.end; ++i) {
      parts[{pieces[i].cause, pieces[i].what}] += pieces[i].end - pieces[i].begin;
      causes[static_cast<size_t>(pieces[i].cause)] += pieces[i].end - pieces[i].begin;
    }
    const auto main =
        static_cast<IdleCause>(std::max_element(causes.begin(), causes.end()) - causes.begin());
    Gap gap;
    gap.begin_ns = candidate.inside.begin, gap.duration_ns = candidate.length();
    gap.cause = main;
    gap.cause_ns = std::min(causes[static_cast<size_t>(main)], gap.duration_ns);
    int64_t most = 0;
    for (const auto& [key, length] : parts) {
      if (key.first != main || length <= most) continue;
      most = length, gap.what = what_text(timeline, key.second);
    }
    const auto after = std::partition_point(device.begin(), device.end(), [&](const DeviceSpan& s) {
      return s.begin < pieces[candidate.end - 1].end;
    });
    if (after != device.end()) {
      gap.step = timeline.spans.step[after->span];
      if (main == IdleCause::kHostLaunch && gap.what.empty() && after->launch >= 0) {
        const Launch& launch = host.launches[static_cast<size_t>(after->launch)];
        gap.what = timeline.strings[launch.operation];
      }
    }
    out.push_back(std::move(gap));
  }
  return out;
}

}  // namespace vitrine

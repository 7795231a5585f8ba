// Joining of events: lanes with names, device work with launches, collectives with their numbers.
#include "readers/kineto_finish.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>
#include <unordered_set>

#include "readers/kineto_names.h"

namespace vitrine {
namespace {

bool device_lane(const RankTimeline& timeline, size_t span) {
  return timeline.lanes[static_cast<size_t>(timeline.spans.lane[span])].device;
}

void name_lanes(KinetoDraft& draft) {
  std::set<std::string> devices;
  for (size_t i = 0; i < draft.timeline.lanes.size(); ++i) {
    if (draft.timeline.lanes[i].device) devices.insert(draft.lane_keys[i].pid);
  }
  for (size_t i = 0; i < draft.timeline.lanes.size(); ++i) {
    Lane& lane = draft.timeline.lanes[i];
    const auto& key = draft.lane_keys[i];
    const auto named = draft.thread_names.find({key.pid, key.tid});
    if (named != draft.thread_names.end()) lane.name = named->second;
    while (!lane.name.empty() && lane.name.back() == ' ') lane.name.pop_back();
    if (lane.name.empty())
      lane.name = (lane.device ? "stream " : "thread ") + std::to_string(lane.tid);
    if (lane.device && devices.size() > 1) lane.name = "device " + key.pid + " " + lane.name;
  }
}

// Streams before threads, each by number; what the order of events happened to be is nobody's.
void sort_lanes(KinetoDraft& draft) {
  std::vector<int32_t> order(draft.timeline.lanes.size());
  std::iota(order.begin(), order.end(), 0);
  const auto key = [&](int32_t i) {
    const Lane& lane = draft.timeline.lanes[static_cast<size_t>(i)];
    const std::string& pid = draft.lane_keys[static_cast<size_t>(i)].pid;
    return std::tuple(!lane.device, pid.size(), pid, lane.tid);
  };
  std::stable_sort(
      order.begin(), order.end(), [&](int32_t a, int32_t b) { return key(a) < key(b); });
  std::vector<Lane> lanes;
  std::vector<int32_t> place(order.size());
  for (const int32_t i : order) {
    place[static_cast<size_t>(i)] = static_cast<int32_t>(lanes.size());
    lanes.push_back(std::move(draft.timeline.lanes[static_cast<size_t>(i)]));
  }
  draft.timeline.lanes = std::move(lanes);
  for (int32_t& lane : draft.timeline.spans.lane) lane = place[static_cast<size_t>(lane)];
}

// The launch of a span, or null.
const KinetoDraft::Call* launch_of(const KinetoDraft& draft, size_t span) {
  const int64_t correlation = draft.timeline.spans.correlation[span];
  if (correlation == 0) return nullptr;
  const auto it = draft.launches.find(correlation);
  return it == draft.launches.end() ? nullptr : &it->second;
}

// A kernel without collective arguments (batched sends and receives, old versions) has those of the
// call in which it was launched, or of the sends and receives that were batched before its launch.
class CollectiveFinder {
 public:
  explicit CollectiveFinder(KinetoDraft& draft) : draft_(draft) {
    for (const auto& call : draft.announcements) calls_[call.lane].push_back(call);
    for (auto& [lane, calls] : calls_) {
      std::sort(calls.begin(), calls.end(), [](const auto& x, const auto& y) {
        return x.start_ns < y.start_ns;
      });
    }
  }

  void run() {
    const Spans& spans = draft_.timeline.spans;
    std::vector<std::pair<const KinetoDraft::Call*, size_t>> bare;
    for (size_t i = 0; i < spans.size(); ++i) {
      if (!is_communication(spans.kind[i]) || !device_lane(draft_.timeline, i)) continue;
      const auto* launch = launch_of(draft_, i);
      if (launch != nullptr) bare.emplace_back(launch, i);
    }
    std::sort(bare.begin(), bare.end(), [](const auto& x, const auto& y) {
      return x.first->start_ns < y.first->start_ns;
    });
    for (const auto& [launch, span] : bare) find(*launch, span);
  }

 private:
  void find(const KinetoDraft::Call& launch, size_t span) {
    const auto& calls = calls_[launch.lane];
    size_t& next = next_[launch.lane];
    const size_t first = next;
    while (next < calls.size() && calls[next].start_ns <= launch.start_ns) ++next;
    if (draft_.timeline.spans.collective[span] >= 0 || next == 0) return;
    if (calls[next - 1].end_ns >= launch.start_ns) return give(span, copy(calls[next - 1]));
    Collective batch;
    bool send = false, receive = false;
    for (size_t i = first; i < next; ++i) {
      const Collective call = copy(calls[i]);
      const SpanKind kind = collective_kind(draft_.timeline.strings[call.name]);
      if (kind != SpanKind::kSend && kind != SpanKind::kReceive) return;
      const int64_t sent = batch.sent_bytes + call.sent_bytes;
      const int64_t in = batch.in_elements + (kind == SpanKind::kSend ? call.in_elements : 0);
      const int64_t out = batch.out_elements + (kind == SpanKind::kSend ? 0 : call.out_elements);
      batch = call;
      batch.sent_bytes = sent, batch.in_elements = in, batch.out_elements = out;
      (kind == SpanKind::kSend ? send : receive) = true;
    }
    if (send && receive) batch.name = draft_.timeline.strings.intern("send_receive");
    if (send || receive) give(span, batch);
  }

  Collective copy(const KinetoDraft::Announcement& call) const {
    return draft_.timeline.collectives[static_cast<size_t>(call.collective)];
  }
  void give(size_t span, Collective collective) {
    RankTimeline& timeline = draft_.timeline;
    timeline.spans.kind[span] = collective_kind(timeline.strings[collective.name]);
    timeline.spans.collective[span] = static_cast<int32_t>(timeline.collectives.size());
    timeline.collectives.push_back(std::move(collective));
  }

  KinetoDraft& draft_;
  std::map<int32_t, std::vector<KinetoDraft::Announcement>> calls_;  // by host lane
  std::map<int32_t, size_t> next_;  // the first call after the last launch
};

struct Step {
  int64_t start_ns, end_ns;
  int32_t step;
};

void assign_steps(KinetoDraft& draft) {
  Spans& spans = draft.timeline.spans;
  std::vector<Step> steps;
  for (size_t i = 0; i < spans.size(); ++i) {
    if (spans.kind[i] != SpanKind::kStep) continue;
    steps.push_back({spans.start_ns[i], spans.start_ns[i] + spans.duration_ns[i], spans.step[i]});
  }
  std::sort(steps.begin(), steps.end(), [](const Step& a, const Step& b) {
    return a.start_ns < b.start_ns;
  });
  if (steps.empty()) return;
  for (size_t i = 0; i < spans.size(); ++i) {
    if (spans.step[i] >= 0) continue;
    const auto* launch = device_lane(draft.timeline, i) ? launch_of(draft, i) : nullptr;
    const int64_t moment = launch ? launch->start_ns : spans.start_ns[i];
    auto after =
        std::upper_bound(steps.begin(), steps.end(), moment, [](int64_t at, const Step& step) {
          return at < step.start_ns;
        });
    if (after == steps.begin()) continue;
    if (--after; moment < after->end_ns) spans.step[i] = after->step;
  }
}

// The writer numbers device work that had no correlation; what no host span shares is such a
// number.
void drop_made_up_correlations(RankTimeline& timeline) {
  std::unordered_set<int64_t> calls;
  for (size_t i = 0; i < timeline.spans.size(); ++i) {
    if (!device_lane(timeline, i)) calls.insert(timeline.spans.correlation[i]);
  }
  for (size_t i = 0; i < timeline.spans.size(); ++i) {
    if (!calls.contains(timeline.spans.correlation[i])) timeline.spans.correlation[i] = 0;
  }
}

template <typename T>
void reorder(std::vector<T>& column, const std::vector<uint32_t>& order) {
  std::vector<T> sorted;
  sorted.reserve(column.size());
  for (const uint32_t i : order) sorted.push_back(column[i]);
  column.swap(sorted);
}

void sort_spans(Spans& spans) {
  std::vector<uint32_t> order(spans.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return spans.start_ns[a] != spans.start_ns[b] ? spans.start_ns[a] < spans.start_ns[b]
                                                  : spans.duration_ns[a] > spans.duration_ns[b];
  });
  reorder(spans.start_ns, order), reorder(spans.duration_ns, order), reorder(spans.name, order);
  reorder(spans.kind, order), reorder(spans.lane, order), reorder(spans.step, order);
  reorder(spans.micro_batch, order), reorder(spans.block, order), reorder(spans.collective, order);
  reorder(spans.correlation, order), reorder(spans.bytes, order), reorder(spans.shapes, order);
}

// After sorting: the order of spans is the order on each lane.
void number_collectives(KinetoDraft& draft) {
  RankTimeline& timeline = draft.timeline;
  std::map<std::pair<StringId, int32_t>, int64_t> next;
  for (size_t i = 0; i < timeline.spans.size(); ++i) {
    if (timeline.spans.collective[i] < 0) continue;
    Collective& collective =
        timeline.collectives[static_cast<size_t>(timeline.spans.collective[i])];
    if (collective.ranks.empty()) {
      const auto it = draft.group_ranks.find(timeline.strings[collective.group]);
      if (it != draft.group_ranks.end()) collective.ranks = it->second;
    }
    int64_t& number = next[{collective.group, timeline.spans.lane[i]}];
    if (collective.sequence < 0) collective.sequence = number;
    ++number;
  }
}

// Announcements are no collectives of their own: only what a span points at stays.
void drop_unused_collectives(RankTimeline& timeline) {
  std::vector<Collective> kept;
  for (int32_t& index : timeline.spans.collective) {
    if (index < 0) continue;
    kept.push_back(std::move(timeline.collectives[static_cast<size_t>(index)]));
    index = static_cast<int32_t>(kept.size()) - 1;
  }
  timeline.collectives = std::move(kept);
}

}  // namespace

RankTimeline finish_kineto(KinetoDraft draft) {
  name_lanes(draft);
  if (draft.own) {
    drop_made_up_correlations(draft.timeline);
  } else {
    CollectiveFinder(draft).run();
  }
  assign_steps(draft);
  sort_spans(draft.timeline.spans);
  sort_lanes(draft);
  number_collectives(draft);
  drop_unused_collectives(draft.timeline);
  if (!draft.world_size_known) {
    for (const Collective& collective : draft.timeline.collectives) {
      for (const int32_t rank : collective.ranks) {
        draft.timeline.world_size = std::max(draft.timeline.world_size, rank + 1);
      }
    }
  }
  draft.timeline.world_size = std::max(draft.timeline.world_size, draft.timeline.rank + 1);
  const auto by_time = [](const auto& a, const auto& b) { return a.time_ns < b.time_ns; };
  std::stable_sort(draft.timeline.memory.begin(), draft.timeline.memory.end(), by_time);
  std::stable_sort(draft.timeline.counters.begin(), draft.timeline.counters.end(), by_time);
  return std::move(draft.timeline);
}

}  // namespace vitrine

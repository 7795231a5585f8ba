// Joining of events: lanes with names, device work with launches, collectives with their numbers.
#include "readers/kineto_finish.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "readers/far_times.h"
#include "readers/huge_pages.h"
#include "readers/kineto_checks.h"
#include "readers/kineto_collectives.h"
#include "readers/kineto_launches.h"
#include "readers/kineto_names.h"
#include "readers/kineto_own.h"
#include "readers/kineto_steps.h"

namespace vitrine {
namespace {

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
  std::vector<KinetoDraft::LaneKey> keys;
  std::vector<int32_t> place(order.size());
  for (const int32_t i : order) {
    place[static_cast<size_t>(i)] = static_cast<int32_t>(lanes.size());
    lanes.push_back(std::move(draft.timeline.lanes[static_cast<size_t>(i)]));
    keys.push_back(std::move(draft.lane_keys[static_cast<size_t>(i)]));
  }
  draft.timeline.lanes = std::move(lanes);
  draft.lane_keys = std::move(keys);
  for (int32_t& lane : draft.timeline.spans.lane) lane = place[static_cast<size_t>(lane)];
  for (auto& call : draft.announcements) call.lane = place[static_cast<size_t>(call.lane)];
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
    if (!lane.device) lane.device_index = -1;
  }
}

// Columns of one width, one after another, each into the memory of the one before.
template <typename T>
void reorder(const std::vector<uint32_t>& order, std::initializer_list<std::vector<T>*> columns) {
  std::vector<T> sorted;
  sorted.reserve(order.size());
  prefer_huge_pages(sorted);
  sorted.resize(order.size());
  for (std::vector<T>* column : columns) {
    for (size_t i = 0; i < order.size(); ++i) sorted[i] = (*column)[order[i]];
    column->swap(sorted);
  }
}

// Files are a few sorted runs one after another, which a merging sort finds nearly done.
void sort_spans(Spans& spans) {
  struct Key {
    int64_t start_ns;
    uint32_t span;
  };
  if (std::is_sorted(spans.start_ns.begin(), spans.start_ns.end(), std::less_equal<>())) return;
  std::vector<Key> keys;
  keys.reserve(spans.size());
  prefer_huge_pages(keys);
  for (size_t i = 0; i < spans.size(); ++i)
    keys.push_back({spans.start_ns[i], static_cast<uint32_t>(i)});
  std::stable_sort(keys.begin(), keys.end(), [&](const Key& a, const Key& b) {
    if (a.start_ns != b.start_ns) return a.start_ns < b.start_ns;
    return spans.duration_ns[a.span] > spans.duration_ns[b.span];
  });
  std::vector<uint32_t> order(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) order[i] = keys[i].span;
  std::vector<Key>().swap(keys);
  reorder(order, {&spans.start_ns, &spans.duration_ns, &spans.correlation, &spans.bytes});
  reorder(order, {&spans.name, &spans.block, &spans.shapes});
  reorder(order, {&spans.lane, &spans.step, &spans.micro_batch, &spans.collective});
  reorder(order, {&spans.kind});
}

// Those of pg_config first, filled up with what collectives say of them.
void join_groups(KinetoDraft& draft) {
  std::map<std::string, size_t> places;
  std::vector<ProcessGroup>& groups = draft.timeline.groups;
  for (size_t i = 0; i < groups.size(); ++i) places.emplace(groups[i].name, i);
  for (auto& [pid, seen] : draft.groups_seen) {
    const auto [it, added] = places.try_emplace(seen.name, groups.size());
    if (added) {
      groups.push_back(std::move(seen));
      continue;
    }
    ProcessGroup& known = groups[it->second];
    if (known.ranks.empty()) known.ranks = std::move(seen.ranks);
    if (known.description.empty()) known.description = std::move(seen.description);
    if (known.size == 0) known.size = seen.size;
  }
}

void set_rank_and_world(KinetoDraft& draft) {
  RankTimeline& timeline = draft.timeline;
  std::string& known = timeline.info["rank.known"];
  if (draft.rank_known) {
    known = "trace";
  } else if (draft.rank_in_name >= 0) {
    timeline.rank = draft.rank_in_name;
    known = "file name";
  } else if (draft.rank_in_collectives >= 0) {
    timeline.rank = draft.rank_in_collectives;
    known = "collectives";
  } else {
    known = "no";
    timeline.warnings.push_back(
        "neither the trace nor its file name says which rank it is of: taken as rank 0");
  }
  if (!draft.world_size_known) {
    const auto widen = [&timeline](const std::vector<int32_t>& ranks) {
      for (const int32_t rank : ranks)
        timeline.world_size = std::max(timeline.world_size, rank + 1);
    };
    for (const Collective& collective : timeline.collectives) widen(collective.ranks);
    for (const ProcessGroup& group : timeline.groups) widen(group.ranks);
  }
  timeline.world_size = std::max(timeline.world_size, timeline.rank + 1);
  timeline.info["world_size.known"] = draft.world_size_known ? "yes" : "no";
}

}  // namespace

RankTimeline finish_kineto(KinetoDraft draft) {
  RankTimeline& timeline = draft.timeline;
  sort_lanes(draft);
  name_lanes(draft);
  if (draft.own) take_own_spans(draft);
  take_counters(draft);
  sort_spans(timeline.spans);
  leave_out_far_times(timeline);
  join_groups(draft);
  if (draft.own) drop_made_up_correlations(timeline);
  if (!draft.own) tell_steps_apart(timeline);
  {
    const KinetoLaunches launches(draft);
    if (!draft.own) find_collectives(draft, launches);
    assign_steps(timeline, launches);
    if (!draft.own) {
      launches.warn();
      check_device_times(draft);
    }
  }
  number_collectives(draft);
  draft.amounts.bound(timeline);
  set_rank_and_world(draft);
  warn_of_damage(draft);
  draft.amounts.warn(timeline.warnings);
  const auto by_time = [](const auto& a, const auto& b) { return a.time_ns < b.time_ns; };
  const auto sort = [&by_time](auto& samples) {
    if (!std::is_sorted(samples.begin(), samples.end(), by_time))
      std::stable_sort(samples.begin(), samples.end(), by_time);
  };
  sort(timeline.memory), sort(timeline.counters), sort(timeline.allocations);
  return std::move(timeline);
}

}  // namespace vitrine

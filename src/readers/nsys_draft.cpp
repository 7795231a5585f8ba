// Steps, launches and collectives of one device's events.
#include "readers/nsys_draft.h"

#include <algorithm>
#include <numeric>

#include "core/format.h"
#include "readers/amounts.h"
#include "readers/far_times.h"
#include "readers/kineto_names.h"
#include "readers/nsys_ranges.h"

namespace vitrine {

int32_t NsysDraft::stream_lane(int64_t stream) {
  const auto [found, is_new] =
      streams_.try_emplace(stream, static_cast<int32_t>(timeline.lanes.size()));
  if (is_new) {
    // The number that synchronisation with a whole context has for a stream.
    const bool none = stream < 0 || stream == 0xFFFFFFFF;
    timeline.lanes.push_back({none ? "context" : "stream " + std::to_string(stream),
                              true,
                              none ? -1 : stream,
                              static_cast<int32_t>(device)});
  }
  return found->second;
}

int32_t NsysDraft::thread_lane(int64_t thread, const std::string& name) {
  const auto [found, is_new] =
      threads_.try_emplace(thread, static_cast<int32_t>(timeline.lanes.size()));
  if (is_new) {
    const std::string number = std::to_string(thread);
    timeline.lanes.push_back(
        {name.empty() ? "thread " + number : name + " (" + number + ")", false, thread, -1});
  }
  return found->second;
}

void NsysDraft::choose_steps() {
  step_number_.assign(events.size(), -1);
  // Of each family of names on each thread the time that it covers; nested steps cover less.
  std::map<std::pair<std::string, int32_t>, std::pair<double, std::vector<size_t>>> families;
  for (size_t i = 0; i < events.size(); ++i) {
    if (!events[i].range) continue;
    const StepName step = step_name(timeline.strings[events[i].name]);
    if (step.family.empty()) continue;
    auto& [time, members] = families[{step.family, events[i].lane}];
    time += static_cast<double>(events[i].end_ns - events[i].start_ns);
    members.push_back(i);
  }
  const auto best = std::max_element(families.begin(), families.end(), [](auto& a, auto& b) {
    return a.second.first < b.second.first;
  });
  if (best == families.end()) return;
  std::vector<size_t>& members = best->second.second;
  std::sort(members.begin(), members.end(), [&](size_t a, size_t b) {
    return events[a].start_ns < events[b].start_ns;
  });
  // A step inside another of the same name is none.
  std::vector<size_t> steps;
  int64_t end = INT64_MIN;
  for (const size_t i : members) {
    if (events[i].start_ns < end) continue;
    steps.push_back(i);
    end = events[i].end_ns;
  }
  // Numbers that go on are used, also where some are missing; those of several loops are not.
  bool numbered = true, again = false;
  int64_t last = -1;
  for (const size_t i : steps) {
    const int64_t number = step_name(timeline.strings[events[i].name]).number;
    numbered = numbered && number >= 0;
    again = again || (number >= 0 && number <= last);
    last = number;
  }
  numbered = numbered && !again;
  for (const size_t i : steps) {
    const int64_t number = numbered ? step_name(timeline.strings[events[i].name]).number
                                    : static_cast<int64_t>(steps_.size());
    steps_.push_back({events[i].start_ns, events[i].end_ns, static_cast<int32_t>(number)});
    step_number_[i] = static_cast<int32_t>(number);
    events[i].kind = SpanKind::kStep;
  }
  timeline.warnings.push_back(format("steps are the %zu NVTX ranges named \"%s%s",
                                     steps_.size(),
                                     best->first.first.c_str(),
                                     numbered ? " N\""
                                     : again  ? " N\", whose numbers begin anew: numbered in order"
                                              : "\", numbered in order"));
}

int32_t NsysDraft::step_at(int64_t time_ns) const {
  const auto after =
      std::upper_bound(steps_.begin(), steps_.end(), time_ns, [](int64_t time, const Step& step) {
        return time < step.start_ns;
      });
  if (after == steps_.begin()) return -1;
  const Step& step = *std::prev(after);
  return time_ns < step.end_ns ? step.number : -1;
}

void NsysDraft::find_launches() {
  for (const NsysEvent& event : events) {
    if (event.kind == SpanKind::kRuntime && event.correlation != 0) {
      launches_.try_emplace(event.correlation, Launch{event.start_ns, event.lane});
    }
  }
}

// Ranges that stand for collectives, by thread and start; of those around a launch the outermost is
// PyTorch's, which knows what its sends and receives are for.
void NsysDraft::name_collectives() {
  collective_of_.assign(events.size(), -1);
  std::map<int32_t, std::vector<size_t>> ranges;  // by lane
  for (size_t i = 0; i < events.size(); ++i) {
    if (events[i].range && !collective_of_range(timeline.strings[events[i].name]).empty()) {
      ranges[events[i].lane].push_back(i);
    }
  }
  for (auto& [lane, list] : ranges) {
    std::sort(list.begin(), list.end(), [&](size_t a, size_t b) {
      return events[a].start_ns < events[b].start_ns;
    });
  }
  const auto around = [&](const Launch& launch) -> const NsysEvent* {
    const auto list = ranges.find(launch.lane);
    if (list == ranges.end()) return nullptr;
    auto it = std::upper_bound(
        list->second.begin(), list->second.end(), launch.start_ns, [&](int64_t time, size_t i) {
          return time < events[i].start_ns;
        });
    // Ranges nest a few deep.
    const NsysEvent* found = nullptr;
    for (int looked = 0; it != list->second.begin() && looked < 16; ++looked) {
      const NsysEvent& event = events[*--it];
      if (event.end_ns < launch.start_ns) continue;
      if (found == nullptr || event.start_ns <= found->start_ns) found = &event;
    }
    return found;
  };
  std::map<std::pair<int32_t, std::string>, int64_t> order;
  std::vector<size_t> kernels;
  for (size_t i = 0; i < events.size(); ++i) {
    if (events[i].kind == SpanKind::kCollective) kernels.push_back(i);
  }
  std::stable_sort(kernels.begin(), kernels.end(), [&](size_t a, size_t b) {
    return events[a].start_ns < events[b].start_ns;
  });
  for (const size_t i : kernels) {
    NsysEvent& kernel = events[i];
    std::string name = collective_from_kernel(timeline.strings[kernel.name]);
    const auto launch = launches_.find(kernel.correlation);
    const NsysEvent* range = launch == launches_.end() ? nullptr : around(launch->second);
    if (range != nullptr) name = collective_of_range(timeline.strings[range->name]);
    if (name.empty() && timeline.strings[kernel.name].find("SendRecv") != std::string::npos) {
      name = "send_receive";
    }
    Collective collective;
    collective.name = timeline.strings.intern(name);
    collective.sequence = order[{kernel.lane, name}]++;
    if (range != nullptr && range->message_bytes > 0) {
      collective.in_elements = collective.out_elements = range->message_bytes;
      collective.dtype = timeline.strings.intern("u8");
      if (name == "send") collective.sent_bytes = range->message_bytes;
    }
    kernel.kind = collective_kind(name);
    collective_of_[i] = static_cast<int32_t>(timeline.collectives.size());
    timeline.collectives.push_back(collective);
  }
}

void NsysDraft::fill() {
  std::vector<uint32_t> order(events.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    if (events[a].start_ns != events[b].start_ns) return events[a].start_ns < events[b].start_ns;
    return events[a].end_ns > events[b].end_ns;
  });
  int64_t negative = 0;
  Spans& spans = timeline.spans;
  spans.reserve(events.size());
  for (const uint32_t i : order) {
    const NsysEvent& event = events[i];
    const bool device_work = timeline.lanes[static_cast<size_t>(event.lane)].device;
    negative += event.end_ns < event.start_ns;
    int32_t step = -1;
    if (step_number_[i] >= 0) {
      step = step_number_[i];
    } else if (!device_work) {
      step = step_at(event.start_ns);
    } else if (const auto launch = launches_.find(event.correlation); launch != launches_.end()) {
      step = step_at(launch->second.start_ns);
    }
    spans.start_ns.push_back(event.start_ns);
    spans.duration_ns.push_back(std::max<int64_t>(event.end_ns - event.start_ns, 0));
    spans.name.push_back(event.name);
    spans.kind.push_back(event.kind);
    spans.lane.push_back(event.lane);
    spans.step.push_back(step);
    spans.micro_batch.push_back(-1);
    spans.block.push_back(kNoString);
    spans.collective.push_back(collective_of_[i]);
    spans.correlation.push_back(event.correlation);
    spans.bytes.push_back(event.bytes);
    spans.shapes.push_back(event.shapes);
  }
  if (negative > 0) {
    timeline.info["reader.negative_durations"] = std::to_string(negative);
    timeline.warnings.push_back(format("%lld events end before they begin: taken as 0 ns long",
                                       static_cast<long long>(negative)));
  }
}

void NsysDraft::finish() {
  // Times count from the session's start: beyond 13 days they are damage.
  constexpr int64_t kLongest = int64_t{1} << 50;
  const size_t before = events.size();
  std::erase_if(events, [](const NsysEvent& event) {
    return event.start_ns < -kLongest || event.start_ns > kLongest || event.end_ns < -kLongest ||
           event.end_ns > kLongest;
  });
  if (events.size() < before) {
    timeline.warnings.push_back(
        format("%zu events lie more than 13 days from the session's start: "
               "left out as damaged",
               before - events.size()));
  }
  choose_steps();
  find_launches();
  name_collectives();
  fill();
  leave_out_far_times(timeline);
  Amounts amounts;
  amounts.bound(timeline);
  amounts.warn(timeline.warnings);
  events.clear();
  events.shrink_to_fit();
}

}  // namespace vitrine

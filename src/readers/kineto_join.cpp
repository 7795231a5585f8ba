// Translation of a piece's numbers into the timeline's columns.
#include "readers/kineto_join.h"

#include <algorithm>
#include <new>

#include "readers/decimal.h"
#include "readers/huge_pages.h"
#include "readers/kineto_header.h"
#include "readers/kineto_names.h"

namespace vitrine {
namespace {

// No count of a real trace is beyond these; products with them fit.
constexpr int64_t kMostElements = int64_t{1} << 40;
constexpr int32_t kMostRanks = 1 << 18;

int32_t small(int64_t value) {
  return value < 0 || value > INT32_MAX ? -1 : static_cast<int32_t>(value);
}

}  // namespace

void KinetoJoiner::learn(size_t parser, KinetoEvents& events) {
  Table& table = tables_[parser];
  for (std::string& text : events.strings) table.texts.push_back(std::move(text));
  table.ids.resize(table.texts.size(), kUnknown);
  for (KinetoEvents::Lane& lane : events.lanes) table.lanes.push_back(std::move(lane));
  table.lane_ids.resize(table.lanes.size(), -1);
}

StringId KinetoJoiner::learn_text(Table& table, uint32_t number) {
  table.ids[number] = draft_.timeline.strings.intern(table.texts[number]);
  std::string().swap(table.texts[number]);
  return table.ids[number];
}

int32_t KinetoJoiner::lane(Table& table, int32_t number, KinetoCategory category) {
  int32_t& id = table.lane_ids[static_cast<size_t>(number)];
  if (id < 0) {
    const KinetoEvents::Lane& lane = table.lanes[static_cast<size_t>(number)];
    const auto [it, added] =
        lane_ids_.try_emplace({lane.pid, lane.tid}, static_cast<int32_t>(lane_ids_.size()));
    id = it->second;
    if (added) {
      draft_.lane_keys.push_back({lane.pid, lane.tid});
      draft_.timeline.lanes.push_back({"", false, first_integer(lane.tid), -1});
    }
    if (lane.device >= 0) {
      draft_.timeline.lanes[static_cast<size_t>(id)].device_index =
          static_cast<int32_t>(lane.device);
    }
  }
  if (on_device(category)) draft_.timeline.lanes[static_cast<size_t>(id)].device = true;
  return id;
}

void KinetoJoiner::reserve(size_t spans) {
  Spans& columns = draft_.timeline.spans;
  if (spans <= columns.size()) return;
  try {
    columns.reserve(spans);
  } catch (const std::bad_alloc&) {
    return;  // merely expected: what comes may be fewer
  }
  for (auto* column :
       {&columns.start_ns, &columns.duration_ns, &columns.correlation, &columns.bytes})
    prefer_huge_pages(*column);
  for (auto* column : {&columns.name, &columns.block, &columns.shapes}) prefer_huge_pages(*column);
  for (auto* column : {&columns.lane, &columns.step, &columns.micro_batch, &columns.collective})
    prefer_huge_pages(*column);
}

void KinetoJoiner::add(size_t parser, const KinetoEvents& events) {
  Table& table = tables_[parser];
  RankTimeline& timeline = draft_.timeline;
  Spans& spans = timeline.spans;
  const auto first = static_cast<uint32_t>(spans.size());
  const size_t size = first + events.spans.size();
  spans.start_ns.resize(size), spans.duration_ns.resize(size), spans.name.resize(size);
  spans.kind.resize(size), spans.lane.resize(size), spans.step.resize(size);
  spans.micro_batch.resize(size, -1), spans.block.resize(size, kNoString);
  spans.collective.resize(size, -1), spans.correlation.resize(size), spans.bytes.resize(size);
  spans.shapes.resize(size);
  size_t i = first;
  for (const KinetoEvents::Span& span : events.spans) {
    const int32_t lane_id = lane(table, span.lane, span.category);
    spans.start_ns[i] = span.start_ns;
    spans.duration_ns[i] = span.duration_ns;
    spans.name[i] = id(table, span.name);
    spans.kind[i] = span.kind;
    spans.lane[i] = lane_id;
    spans.step[i] = span.step;
    spans.correlation[i] = span.correlation;
    spans.bytes[i] = span.bytes;
    spans.shapes[i] = id(table, span.shapes);
    if (span.collective >= 0) add_collective(table, events, span, lane_id, i);
    ++i;
  }
  for (const KinetoEvents::Own& own : events.own) {
    draft_.own_spans.push_back({first + own.span,
                                id(table, own.kind),
                                id(table, own.label),
                                id(table, own.block),
                                own.step,
                                own.micro_batch});
  }
  for (const KinetoEvents::Counter& counter : events.counters) {
    draft_.counters.push_back({counter.time_ns,
                               id(table, counter.pid),
                               id(table, counter.name),
                               id(table, counter.series),
                               counter.value});
  }
  for (const KinetoEvents::Label& label : events.labels) {
    const std::string pid = timeline.strings[id(table, label.pid)];
    const std::string text = timeline.strings[id(table, label.text)];
    if (label.of == KinetoEvents::Label::Of::kProcess) {
      draft_.process_names[pid] = text;
    } else if (label.of == KinetoEvents::Label::Of::kProcessKind) {
      draft_.process_labels[pid] = text;
    } else {
      draft_.thread_names[{pid, timeline.strings[id(table, label.tid)]}] = text;
    }
  }
  timeline.allocations.insert(
      timeline.allocations.end(), events.allocations.begin(), events.allocations.end());
  for (const uint32_t pid : events.allocation_pids)
    draft_.allocation_pids.push_back(id(table, pid));
  draft_.damage.add(events.damage);
}

const std::vector<int32_t>& KinetoJoiner::ranks_of(StringId text) {
  const auto [it, added] = ranks_.try_emplace(text);
  if (added) it->second = ranks_of_text(draft_.timeline.strings[text]);
  return it->second;
}

// Kernels have their own; record_param_comms tells those of the kernels launched inside it; our own
// traces have them on any span.
void KinetoJoiner::add_collective(Table& table,
                                  const KinetoEvents& events,
                                  const KinetoEvents::Span& span,
                                  int32_t lane_id,
                                  size_t index) {
  const bool kernel = span.category == KinetoCategory::kKernel && is_communication(span.kind);
  if (!kernel && !span.announces && events.own.empty()) return;
  const int32_t collective = collective_of(table,
                                           events.arguments[static_cast<size_t>(span.collective)],
                                           draft_.lane_keys[static_cast<size_t>(lane_id)].pid);
  if (span.announces) {
    draft_.announcements.push_back(
        {lane_id, span.start_ns, span.start_ns + span.duration_ns, collective});
  }
  if (kernel || !span.announces) draft_.timeline.spans.collective[index] = collective;
}

int32_t KinetoJoiner::collective_of(Table& table,
                                    const KinetoEvents::Arguments& arguments,
                                    const std::string& pid) {
  RankTimeline& timeline = draft_.timeline;
  Collective out;
  const std::string name = collective_from_c10d(timeline.strings[id(table, arguments.name)]);
  const std::string dtype = dtype_from_c10d(timeline.strings[id(table, arguments.dtype)]);
  out.name = timeline.strings.intern(name);
  out.dtype = timeline.strings.intern(dtype);
  out.group = id(table, arguments.group);
  const std::vector<int32_t>& ranks = ranks_of(id(table, arguments.ranks));
  if (ranks.size() <= kMostRanksACollective) out.ranks = ranks;
  out.sequence = arguments.sequence;
  out.in_elements = draft_.amounts.bounded(arguments.in_elements, 0, kMostElements);
  out.out_elements = draft_.amounts.bounded(arguments.out_elements, 0, kMostElements);
  out.peer = small(arguments.peer);
  out.group_size = arguments.group_size > 0 ? small(arguments.group_size) : -1;
  if (out.group_size < 0 && !ranks.empty()) out.group_size = static_cast<int32_t>(ranks.size());
  out.sent_bytes = arguments.sent_bytes >= 0
                       ? draft_.amounts.bounded(arguments.sent_bytes, 0)
                       : ring_sent_bytes(name,
                                         out.in_elements,
                                         out.out_elements,
                                         dtype_size(dtype),
                                         std::clamp(out.group_size, 0, kMostRanks));
  note_group(pid, out, id(table, arguments.description), ranks);
  // Sends and receives give another rank there.
  if (arguments.rank >= 0 && out.peer < 0 && name != "wait" && name != "send" &&
      name != "receive") {
    const auto rank = static_cast<size_t>(arguments.rank);
    if (rank < ranks.size()) {
      if (draft_.rank_in_collectives < 0) draft_.rank_in_collectives = ranks[rank];
      ++draft_.rank_votes[pid][ranks[rank]];
    }
  }
  timeline.collectives.push_back(std::move(out));
  return static_cast<int32_t>(timeline.collectives.size()) - 1;
}

// A group that only collectives name is known as far as they tell.
void KinetoJoiner::note_group(const std::string& pid,
                              const Collective& collective,
                              StringId description,
                              const std::vector<int32_t>& ranks) {
  if (collective.group == kNoString) return;
  const auto [it, added] = groups_.try_emplace({pid, collective.group}, draft_.groups_seen.size());
  if (added) {
    draft_.groups_seen.push_back({pid, {draft_.timeline.strings[collective.group], "", {}, 0}});
  }
  ProcessGroup& group = draft_.groups_seen[it->second].group;
  if (group.description.empty()) group.description = draft_.timeline.strings[description];
  if (group.ranks.empty()) group.ranks = ranks;
  if (group.size == 0) group.size = std::max(0, collective.group_size);
}

}  // namespace vitrine

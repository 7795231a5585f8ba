// Spans, and the texts, lanes and collectives that they name.
#include "readers/kineto_copier.h"

#include <utility>

#include "readers/decimal.h"

namespace vitrine {

KinetoCopier::KinetoCopier(const KinetoDraft& from)
    : from_(from),
      strings_(from.timeline.strings.size()),
      lanes_(from.lane_keys.size()),
      collectives_(from.timeline.collectives.size()) {}

void KinetoCopier::begin(KinetoDraft& to, const std::map<std::string, std::string>* pids) {
  to_ = &to, pids_ = pids;
  ++turn_;
}

void KinetoCopier::add_span(size_t i) {
  const Spans& a = from_.timeline.spans;
  Spans& b = to_->timeline.spans;
  b.start_ns.push_back(a.start_ns[i]), b.duration_ns.push_back(a.duration_ns[i]);
  b.name.push_back(text(a.name[i])), b.kind.push_back(a.kind[i]);
  b.lane.push_back(lane(a.lane[i])), b.step.push_back(a.step[i]);
  b.micro_batch.push_back(a.micro_batch[i]), b.block.push_back(text(a.block[i]));
  b.collective.push_back(a.collective[i] < 0 ? -1 : collective(a.collective[i]));
  b.correlation.push_back(a.correlation[i]), b.bytes.push_back(a.bytes[i]);
  b.shapes.push_back(text(a.shapes[i]));
}

void KinetoCopier::add(const KinetoDraft::Announcement& call) {
  to_->announcements.push_back(
      {lane(call.lane), call.start_ns, call.end_ns, collective(call.collective)});
}

void KinetoCopier::add(const KinetoDraft::Own& own, uint32_t span) {
  to_->own_spans.push_back(
      {span, text(own.kind), text(own.label), text(own.block), own.step, own.micro_batch});
}

void KinetoCopier::add(const KinetoDraft::Series& sample) {
  to_->counters.push_back(
      {sample.time_ns, text(sample.pid), text(sample.name), text(sample.series), sample.value});
}

void KinetoCopier::add(const KinetoDraft::SeenGroup& seen) {
  to_->groups_seen.push_back({pid_of(seen.pid), seen.group});
}

// Whether the entry is this part's already; else it becomes so, with `next` as its number.
bool KinetoCopier::known(Entry& entry, size_t next) const {
  if (entry.turn == turn_) return true;
  entry = {turn_, static_cast<uint32_t>(next)};
  return false;
}

std::string KinetoCopier::pid_of(const std::string& pid) const {
  if (pids_ == nullptr) return pid;
  const auto it = pids_->find(pid);
  return it == pids_->end() ? pid : it->second;
}

StringId KinetoCopier::text(StringId id) {
  Entry& entry = strings_[id];
  if (!known(entry, 0)) entry.number = to_->timeline.strings.intern(from_.timeline.strings[id]);
  return entry.number;
}

int32_t KinetoCopier::lane(int32_t id) {
  const auto at = static_cast<size_t>(id);
  if (known(lanes_[at], to_->lane_keys.size())) return static_cast<int32_t>(lanes_[at].number);
  const KinetoDraft::LaneKey& key = from_.lane_keys[at];
  Lane lane = from_.timeline.lanes[at];
  const std::string pid = pid_of(key.pid);
  // A card that the events do not name is its process's number.
  if (lane.device_index == static_cast<int32_t>(first_integer(key.pid)))
    lane.device_index = static_cast<int32_t>(first_integer(pid));
  const auto name = from_.thread_names.find({key.pid, key.tid});
  if (name != from_.thread_names.end()) to_->thread_names[{pid, key.tid}] = name->second;
  to_->lane_keys.push_back({pid, key.tid});
  to_->timeline.lanes.push_back(std::move(lane));
  return static_cast<int32_t>(lanes_[at].number);
}

int32_t KinetoCopier::collective(int32_t id) {
  const auto at = static_cast<size_t>(id);
  auto& collectives = to_->timeline.collectives;
  if (known(collectives_[at], collectives.size()))
    return static_cast<int32_t>(collectives_[at].number);
  Collective copy = from_.timeline.collectives[at];
  copy.name = text(copy.name), copy.group = text(copy.group), copy.dtype = text(copy.dtype);
  collectives.push_back(std::move(copy));
  return static_cast<int32_t>(collectives_[at].number);
}

}  // namespace vitrine

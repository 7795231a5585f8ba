// Dicts of the allocator's snapshot told by their keys, and turned into records.
#include "readers/snapshot_records.h"

#include <iterator>
#include <string>

namespace vitrine {

SnapshotRecords::Key SnapshotRecords::key_of_text(std::string_view text) {
  static const std::map<std::string_view, Key> keys = {{"action", Key::kAction},
                                                       {"addr", Key::kAddr},
                                                       {"address", Key::kAddress},
                                                       {"active_size", Key::kActiveSize},
                                                       {"allocated_size", Key::kAllocatedSize},
                                                       {"blocks", Key::kBlocks},
                                                       {"device", Key::kDevice},
                                                       {"device_free", Key::kDeviceFree},
                                                       {"filename", Key::kFilename},
                                                       {"frames", Key::kFrames},
                                                       {"is_expandable", Key::kIsExpandable},
                                                       {"line", Key::kLine},
                                                       {"name", Key::kName},
                                                       {"requested_size", Key::kRequestedSize},
                                                       {"segment_type", Key::kSegmentType},
                                                       {"size", Key::kSize},
                                                       {"stage", Key::kStage},
                                                       {"state", Key::kState},
                                                       {"stream", Key::kStream},
                                                       {"time_us", Key::kTimeUs},
                                                       {"total_size", Key::kTotalSize}};
  const auto found = keys.find(text);
  return found == keys.end() ? Key::kOther : found->second;
}

SnapshotRecords::Key SnapshotRecords::key_of(Unpickler& pickle, const PickleValue& key) {
  if (key.type != PickleValue::Type::kText) return Key::kOther;
  for (size_t id = keys_.size(); id < pickle.strings().size(); ++id) {
    keys_.push_back(key_of_text(pickle.strings()[static_cast<StringId>(id)]));
  }
  return keys_[key.text];
}

std::optional<PickleRecord> SnapshotRecords::dict(Unpickler& pickle,
                                                  std::span<const PickleValue> items) {
  present_ = 0;
  for (size_t i = 0; i < items.size(); i += 2) {
    const Key key = key_of(pickle, items[i]);
    values_[static_cast<size_t>(key)] = items[i + 1];
    present_ |= uint32_t{1} << static_cast<unsigned>(key);
  }
  if (has(Key::kFilename) && has(Key::kName)) return frame();
  if (has(Key::kAction)) return event(pickle);
  if (has(Key::kBlocks)) return segment(pickle);
  if (has(Key::kState) && has(Key::kSize)) return block(pickle);
  if (has(Key::kStage) && has(Key::kName)) return annotation(pickle);
  return std::nullopt;
}

int64_t SnapshotRecords::integer(Key key, int64_t missing) const {
  if (!has(key)) return missing;
  const PickleValue& value = at(key);
  using Type = PickleValue::Type;
  return value.type == Type::kInteger || value.type == Type::kBoolean ? value.integer : missing;
}

// No card has 16 TiB: more, or less than nothing, is damage, and would overflow in sums.
int64_t SnapshotRecords::size(Key key, int64_t missing) {
  const int64_t bytes = integer(key, missing);
  if (bytes >= 0 && bytes <= int64_t{1} << 44) return bytes;
  ++impossible_sizes;
  return 0;
}

StringId SnapshotRecords::text(Key key) const {
  return has(key) && at(key).type == PickleValue::Type::kText ? at(key).text : kNoString;
}

PickleRecord SnapshotRecords::frame() {
  AllocatorFrame frame;
  frame.function = text(Key::kName);
  frame.file = text(Key::kFilename);
  frame.line = static_cast<int32_t>(integer(Key::kLine));
  const auto [found, is_new] = frame_ids_.try_emplace({frame.function, frame.file, frame.line},
                                                      static_cast<uint32_t>(frames.size()));
  if (is_new) frames.push_back(frame);
  return {kFrame, found->second};
}

// The stack of the dict at hand, -1 = none; the list of its frames becomes one record.
int32_t SnapshotRecords::stack(Unpickler& pickle) {
  if (!has(Key::kFrames)) return -1;
  const PickleValue& list = at(Key::kFrames);
  if (const auto known = pickle.record(list)) {
    return known->kind == kStack ? static_cast<int32_t>(known->index) : -1;
  }
  std::vector<uint32_t> ids;
  uint64_t hash = 1469598103934665603u;
  for (const PickleValue& value : pickle.items(list)) {
    const auto frame = pickle.record(value);
    if (!frame || frame->kind != kFrame) continue;
    ids.push_back(frame->index);
    hash = (hash ^ frame->index) * 1099511628211u;
  }
  if (ids.empty()) return -1;
  const auto [begin, end] = stack_ids_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    if (stacks[it->second] != ids) continue;
    pickle.fold(list, {kStack, it->second});
    return static_cast<int32_t>(it->second);
  }
  const auto index = static_cast<uint32_t>(stacks.size());
  ids.shrink_to_fit();
  stacks.push_back(std::move(ids));
  stack_ids_.emplace(hash, index);
  pickle.fold(list, {kStack, index});
  return static_cast<int32_t>(index);
}

PickleRecord SnapshotRecords::block(Unpickler& pickle) {
  AllocatorBlock block;
  block.address = static_cast<uint64_t>(integer(Key::kAddress));
  block.size_bytes = size(Key::kSize);
  block.requested_bytes = size(Key::kRequestedSize, block.size_bytes);
  const std::string& state = pickle.strings()[text(Key::kState)];
  using State = AllocatorBlock::State;
  block.state = state == "active_allocated"    ? State::kActive
                : state.starts_with("active_") ? State::kAwaitingFree
                                               : State::kInactive;
  block.stack = stack(pickle);
  blocks.push_back(block);
  return {kBlock, static_cast<uint32_t>(blocks.size() - 1)};
}

PickleRecord SnapshotRecords::event(Unpickler& pickle) {
  using Action = AllocatorEvent::Action;
  static const std::map<std::string_view, Action> actions = {
      {"alloc", Action::kAlloc},
      {"free_requested", Action::kFreeRequested},
      {"free_completed", Action::kFreeCompleted},
      {"segment_alloc", Action::kSegmentAlloc},
      {"segment_free", Action::kSegmentFree},
      {"segment_map", Action::kSegmentMap},
      {"segment_unmap", Action::kSegmentUnmap},
      {"oom", Action::kOutOfMemory},
      {"snapshot", Action::kSnapshot}};
  AllocatorEvent event;
  const auto action = actions.find(pickle.strings()[text(Key::kAction)]);
  event.action = action == actions.end() ? Action::kOther : action->second;
  const Key address = has(Key::kDeviceFree) ? Key::kDeviceFree : Key::kAddr;
  event.address = static_cast<uint64_t>(integer(address));
  event.size_bytes = size(Key::kSize);
  event.stream = integer(Key::kStream);
  const int64_t time_us = integer(Key::kTimeUs, -1);
  constexpr int64_t kLatest = INT64_MAX / 1000;
  event.time_ns = time_us < 0 || time_us > kLatest ? -1 : time_us * 1000;
  event.stack = stack(pickle);
  events.push_back(event);
  return {kEvent, static_cast<uint32_t>(events.size() - 1)};
}

PickleRecord SnapshotRecords::segment(Unpickler& pickle) {
  AllocatorSegment segment;
  segment.device = static_cast<int32_t>(integer(Key::kDevice));
  segment.address = static_cast<uint64_t>(integer(Key::kAddress));
  segment.stream = integer(Key::kStream);
  segment.total_bytes = size(Key::kTotalSize);
  segment.allocated_bytes = size(Key::kAllocatedSize);
  segment.active_bytes = size(Key::kActiveSize);
  segment.requested_bytes = size(Key::kRequestedSize, segment.active_bytes);
  segment.large = pickle.strings()[text(Key::kSegmentType)] != "small";
  segment.expandable = integer(Key::kIsExpandable) != 0;
  // Blocks of older versions have no address of their own: they lie one after the other.
  uint64_t address = segment.address;
  for (const PickleValue& value : pickle.items(at(Key::kBlocks))) {
    const auto record = pickle.record(value);
    if (!record || record->kind != kBlock || record->index >= blocks.size()) continue;
    AllocatorBlock block = blocks[record->index];
    if (block.address == 0) block.address = address;
    address = block.address + static_cast<uint64_t>(block.size_bytes);
    segment.blocks.push_back(block);
  }
  if (at(Key::kBlocks).type == PickleValue::Type::kList && !pickle.record(at(Key::kBlocks))) {
    pickle.fold(at(Key::kBlocks), {kBlocks, 0});  // its blocks live in the segment now
  }
  segments.push_back(std::move(segment));
  return {kSegment, static_cast<uint32_t>(segments.size() - 1)};
}

PickleRecord SnapshotRecords::annotation(Unpickler& pickle) {
  AllocatorAnnotation annotation;
  const int64_t time_us = integer(Key::kTimeUs, -1);
  annotation.time_ns = time_us < 0 || time_us > INT64_MAX / 1000 ? -1 : time_us * 1000;
  annotation.device = static_cast<int32_t>(integer(Key::kDevice));
  annotation.name = text(Key::kName);
  annotation.start = pickle.strings()[text(Key::kStage)] != "END";
  annotations.push_back(annotation);
  return {kAnnotation, static_cast<uint32_t>(annotations.size() - 1)};
}

}  // namespace vitrine

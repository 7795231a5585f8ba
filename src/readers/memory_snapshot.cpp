// The snapshot's lists put together from the records, and its history checked against itself.
#include "readers/memory_snapshot.h"

#include <algorithm>
#include <map>
#include <unordered_set>

#include "core/error.h"
#include "core/format.h"
#include "readers/amounts.h"
#include "readers/file_rank.h"
#include "readers/snapshot_records.h"

namespace vitrine {

namespace {

class Assembler {
 public:
  Assembler(Unpickler& pickle, SnapshotRecords& records, const std::string& path)
      : pickle_(pickle), records_(records) {
    snapshot.source = path;
    snapshot.rank = rank_in_file_name(path);
  }

  void root(const PickleValue& value) {
    bool known = false;
    if (value.type == PickleValue::Type::kDict) {
      const auto items = pickle_.items(value);
      for (size_t i = 0; i + 1 < items.size(); i += 2) {
        const std::string key = text(items[i]);
        known = known || key == "segments" || key == "device_traces";
        if (key == "segments") segments(items[i + 1]);
        if (key == "device_traces") histories(items[i + 1]);
        if (key == "external_annotations") annotations(items[i + 1]);
        if (key == "allocator_settings") settings(items[i + 1], "", 0);
      }
    } else if (value.type == PickleValue::Type::kList && !records_.segments.empty()) {
      segments(value);
      known = !snapshot.segments.empty();
    }
    if (!known) {
      throw IoError(snapshot.source +
                    " is a pickle, but no allocator snapshot: it has neither \"segments\" nor "
                    "\"device_traces\"; write one with torch.cuda.memory._dump_snapshot");
    }
    if (left_out_ > 0) {
      snapshot.warnings.push_back(
          format("%lld entries are no event, segment or annotation, or stand twice: left out",
                 static_cast<long long>(left_out_)));
    }
  }

  void finish() {
    if (records_.impossible_sizes > 0) {
      snapshot.warnings.push_back(
          format("%lld sizes are negative or beyond any card's memory: taken as 0",
                 static_cast<long long>(records_.impossible_sizes)));
    }
    snapshot.strings = std::move(pickle_.strings());
    snapshot.frames = std::move(records_.frames);
    snapshot.stacks = std::move(records_.stacks);
    for (auto& history : snapshot.history) sort(history);
    std::stable_sort(snapshot.annotations.begin(),
                     snapshot.annotations.end(),
                     [](const auto& a, const auto& b) { return a.time_ns < b.time_ns; });
    for (size_t device = 0; device < snapshot.history.size(); ++device) check(device);
    Amounts amounts;
    amounts.bound(snapshot);
    amounts.warn(snapshot.warnings);
  }
  AllocatorSnapshot snapshot;

 private:
  std::string text(const PickleValue& value) const {
    return value.type == PickleValue::Type::kText ? pickle_.strings()[value.text] : "";
  }

  // Each record is taken once, so that a list that repeats itself can't grow.
  std::optional<uint32_t> take(const PickleValue& value,
                               uint8_t kind,
                               std::vector<bool>& taken,
                               size_t size) {
    const auto record = pickle_.record(value);
    taken.resize(size);
    if (!record || record->kind != kind || record->index >= size || taken[record->index]) {
      ++left_out_;
      return std::nullopt;
    }
    taken[record->index] = true;
    return record->index;
  }

  void segments(const PickleValue& list) {
    std::vector<bool> taken;
    for (const PickleValue& value : pickle_.items(list)) {
      const auto index = take(value, SnapshotRecords::kSegment, taken, records_.segments.size());
      if (index) snapshot.segments.push_back(std::move(records_.segments[*index]));
    }
  }

  void annotations(const PickleValue& list) {
    std::vector<bool> taken;
    for (const PickleValue& value : pickle_.items(list)) {
      const auto index =
          take(value, SnapshotRecords::kAnnotation, taken, records_.annotations.size());
      if (index) snapshot.annotations.push_back(records_.annotations[*index]);
    }
  }

  void histories(const PickleValue& list) {
    const auto devices = pickle_.items(list);
    std::vector<bool> taken;
    std::map<uint32_t, size_t> device_of;  // by number of the list
    bool some_taken = false;
    for (const PickleValue& device : devices) {
      const auto items = pickle_.items(device);
      const size_t number = snapshot.history.size();
      std::vector<AllocatorEvent>& history = snapshot.history.emplace_back();
      if (items.empty()) continue;
      if (const auto [known, is_new] = device_of.try_emplace(device.object, number); !is_new) {
        throw IoError(
            format("%s gives devices %zu and %zu one and the same history: expected a list for "
                   "each in \"device_traces\"; was it changed after _dump_snapshot?",
                   snapshot.source.c_str(),
                   known->second,
                   number));
      }
      if (!some_taken && whole(items)) {
        // One device has the whole history, as in most files: it is not copied.
        history = std::move(records_.events);
        records_.events.clear();
        taken.clear();
        some_taken = true;
        continue;
      }
      some_taken = true;
      history.reserve(items.size());
      for (const PickleValue& value : items) {
        const auto index = take(value, SnapshotRecords::kEvent, taken, records_.events.size());
        if (index) history.push_back(records_.events[*index]);
      }
    }
  }

  bool whole(std::span<const PickleValue> items) const {
    if (items.size() != records_.events.size() || items.empty()) return false;
    for (size_t i = 0; i < items.size(); ++i) {
      const auto record = pickle_.record(items[i]);
      if (!record || record->kind != SnapshotRecords::kEvent || record->index != i) return false;
    }
    return true;
  }

  void settings(const PickleValue& dict, const std::string& prefix, int depth) {
    const auto items = pickle_.items(dict);
    for (size_t i = 0; i + 1 < items.size(); i += 2) {
      const std::string key = prefix + text(items[i]);
      const PickleValue& value = items[i + 1];
      switch (value.type) {
        case PickleValue::Type::kText:
          snapshot.settings[key] = text(value);
          break;
        case PickleValue::Type::kBoolean:
          snapshot.settings[key] = value.integer != 0 ? "true" : "false";
          break;
        case PickleValue::Type::kInteger:
          snapshot.settings[key] = std::to_string(value.integer);
          break;
        case PickleValue::Type::kFloat:
          snapshot.settings[key] = format("%g", value.real);
          break;
        case PickleValue::Type::kDict:
          if (depth < 2) settings(value, key + ".", depth + 1);
          break;
        default:
          break;
      }
    }
  }

  void sort(std::vector<AllocatorEvent>& history) {
    const auto earlier = [](const AllocatorEvent& a, const AllocatorEvent& b) {
      return a.time_ns < b.time_ns;
    };
    if (std::is_sorted(history.begin(), history.end(), earlier)) return;
    std::stable_sort(history.begin(), history.end(), earlier);
    snapshot.warnings.push_back("the history was not in order of time: sorted");
  }

  // Whether the history explains all that is freed in it and all that is in use at its end.
  void check(size_t device) {
    using Action = AllocatorEvent::Action;
    const auto& history = snapshot.history[device];
    if (history.empty()) return;
    std::unordered_set<uint64_t> live;
    int64_t unknown_frees = 0, unknown_blocks = 0;
    for (const AllocatorEvent& event : history) {
      if (event.action == Action::kAlloc) live.insert(event.address);
      if (event.action == Action::kFreeCompleted && live.erase(event.address) == 0) {
        ++unknown_frees;
      }
    }
    for (const AllocatorSegment& segment : snapshot.segments) {
      if (segment.device != static_cast<int32_t>(device)) continue;
      for (const AllocatorBlock& block : segment.blocks) {
        unknown_blocks +=
            block.state != AllocatorBlock::State::kInactive && !live.contains(block.address);
      }
    }
    if (unknown_frees + unknown_blocks == 0) return;
    snapshot.history_wrapped = true;
    snapshot.warnings.push_back(
        format("the history of device %zu begins in the middle of the run (the ring of events was "
               "full, or recording began late): %lld blocks are freed and %lld still in use whose "
               "allocation it does not hold; raise max_entries of "
               "torch.cuda.memory._record_memory_history",
               device,
               static_cast<long long>(unknown_frees),
               static_cast<long long>(unknown_blocks)));
  }

  Unpickler& pickle_;
  SnapshotRecords& records_;
  int64_t left_out_ = 0;
};

}  // namespace

AllocatorSnapshot read_memory_snapshot(const std::string& path) {
  SnapshotRecords records;
  Unpickler pickle(path, records);
  const PickleValue root = pickle.load();
  Assembler assembler(pickle, records, path);
  assembler.root(root);
  assembler.finish();
  return std::move(assembler.snapshot);
}

}  // namespace vitrine

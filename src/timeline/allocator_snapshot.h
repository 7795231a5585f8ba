// What PyTorch's caching allocator says of itself (torch.cuda.memory._snapshot): segments, blocks,
// and the history of allocations with the frames that asked for them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "timeline/timeline.h"

namespace vitrine {

struct AllocatorBlock {
  uint64_t address = 0;
  int64_t size_bytes = 0, requested_bytes = 0;
  enum class State : uint8_t { kActive, kAwaitingFree, kInactive } state = State::kInactive;
  int32_t stack = -1;  // index into AllocatorSnapshot::stacks, -1 = not recorded
};

struct AllocatorSegment {
  int32_t device = 0;
  uint64_t address = 0;
  int64_t stream = 0;
  int64_t total_bytes = 0, allocated_bytes = 0, active_bytes = 0, requested_bytes = 0;
  bool large = true, expandable = false;
  std::vector<AllocatorBlock> blocks;  // by address
};

struct AllocatorEvent {
  enum class Action : uint8_t {
    kAlloc,
    kFreeRequested,
    kFreeCompleted,
    kSegmentAlloc,
    kSegmentFree,
    kSegmentMap,
    kSegmentUnmap,
    kOutOfMemory,  // `size_bytes` was asked for, `address` holds the bytes that were free
    kSnapshot,
    kOther
  } action = Action::kOther;
  uint64_t address = 0;
  int64_t size_bytes = 0;
  int64_t stream = 0;
  int64_t time_ns = 0;  // since the epoch; -1 = not recorded
  int32_t stack = -1;
};

struct AllocatorFrame {
  StringId function = kNoString, file = kNoString;
  int32_t line = 0;
};

// "START Optimizer.step#AdamW.step"
struct AllocatorAnnotation {
  int64_t time_ns = 0;
  bool start = true;
  int32_t device = 0;
  StringId name = kNoString;
};

struct AllocatorSnapshot {
  std::string source;
  int32_t rank = -1;  // from the file's name; -1 = not known
  StringPool strings;
  std::vector<AllocatorFrame> frames;
  std::vector<std::vector<uint32_t>> stacks;  // of frames, innermost first; shared by content
  std::vector<AllocatorSegment> segments;
  std::vector<std::vector<AllocatorEvent>> history;  // by device, in order of time
  std::vector<AllocatorAnnotation> annotations;      // in order of time
  std::map<std::string, std::string> settings;
  // The history begins in the middle of the run: the ring of events was full, or recording began
  // late.
  bool history_wrapped = false;
  std::vector<std::string> warnings;
};

}  // namespace vitrine

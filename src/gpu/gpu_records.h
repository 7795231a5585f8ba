// What a GPU's tracer delivers, and its way into a rank's timeline beside what the host recorded.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "timeline/timeline.h"

namespace vitrine {

// A piece of work as the host issues it: what the kernels launched meanwhile belong to. Strings are
// the recorder's.
struct GpuWork {
  StringId name = kNoString;  // of the operation: "rms_norm", "gather body.3"
  StringId block = kNoString;
  int32_t lane = -1;  // the recorder's lane of the issuing thread
  int32_t step = -1, micro_batch = -1;
};

// Times are now_ns().
struct GpuRecord {
  enum class Kind : uint8_t { kKernel, kCopy, kSet, kCall, kSync };
  Kind kind = Kind::kKernel;
  bool driver = false;  // of a kCall: of the driver's interface, kept only if it launched work
  std::string name;     // kernel's, call's; of copies and sets as Kineto words them
  int64_t start_ns = 0, end_ns = 0;
  uint32_t device = 0, stream = 0;  // of device work, and of a sync the stream waited for
  uint32_t thread = 0;              // of calls: the system's number
  uint32_t correlation = 0;         // the call's, and of what it launched (a graph: many)
  int64_t bytes = 0;
};

struct GpuRecords {
  std::vector<GpuRecord> records;
  // Correlation of a call -> 1 + index of the GpuWork it was made in; calls outside have none.
  std::unordered_map<uint32_t, uint64_t> work_of;
  int64_t dropped = 0;
};

// Adds a device lane for each stream (kernels, copies, sets) and the runtime calls, sorted with
// what is there. A kernel gets step, micro-batch and block of its work (else the step in which it
// was launched), and, where it is NCCL's, the arguments of the collective that the host recorded
// around the launch. Calls within a work go on the work's lane, others on "thread <n>". The lanes
// that are there become host lanes: their threads issue, the streams do.
void add_gpu_records(const GpuRecords& gpu,
                     const std::vector<GpuWork>& works,
                     RankTimeline& timeline);

}  // namespace vitrine

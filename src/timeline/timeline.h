// What happened (or is predicted, or was imported), rank by rank: spans on lanes, memory and
// counter samples, collectives. The one structure that analysis and report read.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace vitrine {

// Index into a StringPool.
using StringId = uint32_t;
constexpr StringId kNoString = 0;  // always ""

class StringPool {
 public:
  StringPool() { intern(""); }
  StringId intern(std::string_view text);
  const std::string& operator[](StringId id) const { return strings_[id]; }
  size_t size() const { return strings_.size(); }

 private:
  void grow();

  std::vector<std::string> strings_;
  std::vector<StringId> slots_;  // open addressing by hash of the text; kFree = none
};

// What a span is. The names are the action kinds of a Schedule plus what imported traces have
// besides.
enum class SpanKind : uint8_t {
  kForward,
  kRecompute,
  kBackward,
  kOptimizer,  // update of parameters
  kOperation,  // one operation of a block's tape, or a framework operator
  kKernel,     // device work that is not communication
  kGather,     // collectives ...
  kReduce,
  kCollective,
  kSend,
  kReceive,
  kCopy,  // memory copies and sets
  kDisk,
  kData,     // waiting for the next batch
  kHost,     // other host work
  kRuntime,  // driver and runtime calls
  kSync,     // waiting for an event or a lane
  kRegion,   // user's named regions
  kStep,     // one training step
};
const char* span_kind_name(SpanKind kind);
SpanKind span_kind_from_name(const std::string& name);  // throws ConfigError
bool is_communication(SpanKind kind);

// A collective's arguments; `collective` of a span is its index in RankTimeline::collectives, -1 =
// none.
struct Collective {
  StringId name =
      kNoString;  // "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send", ...
  StringId group = kNoString;  // process group's name
  std::vector<int32_t> ranks;  // global ranks of the group; empty when unknown
  int64_t sequence = -1;       // order number within (group, lane)
  int64_t in_elements = 0, out_elements = 0;
  int64_t sent_bytes = 0;  // by this rank to others: what the Schedule's own count is compared with
  StringId dtype = kNoString;
  int32_t peer = -1;        // global rank of the other side of send / receive
  int32_t group_size = -1;  // known even where `ranks` is not
};

// Columnar: entry i of every vector describes span i. Times are integer nanoseconds.
struct Spans {
  std::vector<int64_t> start_ns, duration_ns;
  std::vector<StringId> name;  // shown
  std::vector<SpanKind> kind;
  std::vector<int32_t> lane;               // index into RankTimeline::lanes
  std::vector<int32_t> step, micro_batch;  // -1 = not known
  std::vector<StringId> block;             // "body.3"
  std::vector<int32_t> collective;         // index or -1
  std::vector<int64_t> correlation;        // links host calls to device work; 0 = none
  std::vector<int64_t> bytes;              // of a copy or set; 0 = none or not known
  std::vector<StringId> shapes;            // of an operator's inputs, as recorded: "[[4, 8], []]"
  size_t size() const { return start_ns.size(); }
  void reserve(size_t count);
};

struct Lane {
  std::string name;     // "compute", "gather", "reduce", "stream 7", "thread 4242"
  bool device = false;  // device streams, and the engine's lanes (which stand where streams stand)
  int64_t tid = 0;      // thread or stream number in files
  int32_t device_index = -1;  // number of the card within its process, of device lanes
};

// Ranks that communicate together, as the trace declares them.
struct ProcessGroup {
  std::string name;            // "0", "default_pg": the key that collectives use
  std::string description;     // "TENSOR_MODEL_PARALLEL_GROUP"; "" = none
  std::vector<int32_t> ranks;  // global; empty when not listed
  int32_t size = 0;            // 0 = not known
};

struct MemorySample {
  int64_t time_ns;
  std::array<int64_t, 8> bytes;  // by MemoryCategory of core/memory_ledger.h
};

// One call of the framework's allocator, as far as its profiler tells.
struct AllocationEvent {
  int64_t time_ns;
  uint64_t address;
  int64_t bytes;                // negative: freed
  int64_t allocated, reserved;  // totals after it, of the device; -1 = not known
  int32_t device_index;         // -1 = the host
};

struct CounterSample {
  int64_t time_ns;
  StringId name;
  double value;
};

struct RankTimeline {
  int32_t rank = 0, world_size = 1;
  std::string source;  // file or "recorded"
  StringPool strings;
  std::vector<Lane> lanes;
  Spans spans;
  std::vector<Collective> collectives;
  std::vector<MemorySample> memory;
  std::vector<CounterSample> counters;
  std::vector<ProcessGroup> groups;
  std::vector<AllocationEvent> allocations;
  std::vector<std::string> warnings;  // what of the input could not be read or trusted, with counts
  std::map<std::string, std::string> info;  // device, versions, backend, ...
  int64_t wall_anchor_ns = 0;               // wall clock at monotonic 0 of start_ns; 0 = unknown
};

struct Timeline {
  std::string origin;  // "recorded", "predicted", "imported"
  std::vector<RankTimeline> ranks;
};

}  // namespace vitrine

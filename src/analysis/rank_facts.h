// Everything that is measured of one rank by itself. Small whatever the length of its timeline, so
// that a job of any number of ranks is measured with a few timelines in memory at once.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "analysis/breakdown.h"
#include "analysis/kernel_class.h"
#include "analysis/memory_facts.h"
#include "analysis/path_facts.h"
#include "timeline/timeline.h"

namespace vitrine {

// All times are integer nanoseconds of the rank's own clock (RankTimeline's start_ns); every
// share and sum of device time is of unions of intervals, never of summed durations, unless it says
// "summed".

enum class Phase : uint8_t { kForward, kBackward, kOptimizer, kOther };
constexpr int kPhases = 4;
const char* phase_name(Phase phase);  // "forward", ...

// Why a device did nothing.
enum class IdleCause : uint8_t {
  // The host reached the launch too late, busy in its own code or in launching. `what`: "launch
  // latency", a launch or allocator call that took long, else "".
  kHostLaunch,
  kHostSync,     // the host was waiting for the device (`what`: the call) and launched only then
  kDataLoading,  // the host was waiting for its next batch
  kRegion,       // the host was inside a region that the user named (`what`), without launching
  // Launched in time, held back by another stream or event. `what` is "between kernels" for gaps of
  // at most 10 us, which every device has.
  kStreamWait,
  kGraphReplay,  // between kernels of one replayed graph: an artefact of tracing, in part
  kProfiler,     // the profiler's own work
  kUnknown       // no launch was recorded
};
constexpr int kIdleCauses = 8;
const char* idle_cause_name(IdleCause cause);

using IdleByCause = std::array<int64_t, kIdleCauses>;

struct Gap {
  int64_t begin_ns = 0, duration_ns = 0;
  IdleCause cause = IdleCause::kUnknown;  // of most of it
  std::string what;  // the call, region or operator on the host that took the time; "" = none
  int32_t step = -1;
  int64_t cause_ns = 0;  // of the duration, what is of that cause
};

struct KernelRow {
  std::string name;
  KernelClass kind = KernelClass::kOther;
  bool communication = false, copy = false;
  bool tensor_core = false;  // by its name: true is certain, false is not
  int64_t count = 0, total_ns = 0, min_ns = 0, max_ns = 0;  // summed
};

struct OperatorRow {
  std::string name, shapes;  // shapes "" when not recorded
  int64_t count = 0;
  int64_t host_ns = 0, host_self_ns = 0;  // summed, with and without operators inside
  int64_t device_ns = 0;                  // summed over the kernels launched directly in it
  double flops = 0;                       // summed; 0 = not known
  double bytes = 0;                       // read and written at least, summed; 0 = not known
};

// A process group, by the trace's own declaration or by use.
struct GroupUse {
  std::string name, description;
  std::vector<int32_t> ranks;  // global; empty when not known
  int32_t size = 0;            // 0 = not known
};

// One communication kernel (or a lane's collective of our own runs).
struct CollectiveUse {
  int64_t start_ns = 0, duration_ns = 0;
  int64_t exposed_ns = 0;  // not hidden behind this rank's compute
  int64_t launch_ns = -1;  // when the host launched it; -1 = not known
  int32_t lane = -1, step = -1, micro_batch = -1;
  std::string name;    // "all_reduce", "send", "send_receive", ...; "" = not known
  int32_t group = -1;  // index into RankFacts::groups, -1 = not known
  int64_t sequence = -1;
  int32_t peer = -1;
  Phase phase = Phase::kOther;
  // Message size as nccl-tests count it (the whole buffer of the larger side); 0 = not known.
  int64_t bytes = 0;
  int64_t sent_bytes = 0;
};

struct StepFacts {
  std::string name;  // "ProfilerStep#4", "step 4"
  int32_t step = -1;
  int64_t start_ns = 0, duration_ns = 0;  // on the host
  Breakdown time;                         // of the window on the host
  // Device work launched in this step, wherever in time it ran; as the Breakdown of its own window.
  // Work that was launched before the recording began is in no step.
  Breakdown device;
  int64_t device_begin_ns = 0, device_end_ns = 0;  // equal when the step launched nothing
  std::array<int64_t, kPhases> phase_ns{};         // compute by phase
  std::array<int64_t, kKernelClasses> class_ns{};  // compute by class, summed
  IdleByCause idle_by_cause{};                     // adds up to time.idle_ns
  std::map<std::string, int64_t> idle_by_what;     // by call, region, ... (largest 8)
  int64_t data_ns = 0;  // host in data loading, without its waits for the device
  int64_t sync_ns = 0;  // host in synchronising calls, whether or not the device was idle
  int64_t allocator_ns = 0, allocator_calls = 0;  // cudaMalloc, cudaFree, cudaHostAlloc and alike
  int64_t copy_ns = 0;                            // copies and sets, hidden or not
  int64_t kernels = 0;
  int64_t collectives = 0;
  int64_t recompute_ns = 0;  // compute of forward work done again in backward
};

struct LaunchFacts {
  int64_t launches = 0, kernels = 0;              // kernels with a known launch
  int64_t delay_median_ns = 0, delay_p90_ns = 0;  // device start - launch's end, at least 0
  int64_t short_kernels = 0;                      // under 10 us
  int64_t kernel_median_ns = 0, launch_median_ns = 0;
  double queue_mean = 0;  // kernels launched and not begun, seen at each launch
  int64_t queue_max = 0;
  double starved_share = 0;  // of kernels that found an empty queue and an idle device
  int64_t graph_launches = 0, graph_kernels = 0;
  int64_t before_launch = 0;  // kernels whose clock says they began before their launch
};

// Compute of the device at a coarse grain: for the pipeline chart and for the overview.
struct WorkPiece {
  int64_t begin_ns = 0, end_ns = 0, busy_ns = 0;
  Phase phase = Phase::kOther;
  int32_t micro_batch = -1;  // where the trace says it
};

struct CounterFacts {
  std::string name;
  int64_t samples = 0;
  double min = 0, mean = 0, max = 0;
};

struct RankFacts {
  int32_t rank = 0, world_size = 1;
  std::string source;  // file, or what the trace calls itself
  std::string path;    // of the file, where the caller knows it
  std::string origin;  // "PyTorch profiler", "Nsight Systems", "Vitrine"
  std::string device;  // the card's name; "" = not known
  std::string host;
  std::map<std::string, std::string> info;
  int64_t wall_anchor_ns = 0;

  // False: nothing ran on a device lane; host operators then count as compute, and `notes` says so.
  bool device_work = false;
  int64_t begin_ns = 0, end_ns = 0;  // window of `total`: first to last device work
  Breakdown total;
  std::vector<StepFacts> steps;
  std::array<int64_t, kPhases> phase_ns{};
  std::array<int64_t, kKernelClasses> class_ns{};  // summed
  int64_t tensor_core_ns = 0, matmul_ns = 0;       // summed; matmul: classes that could use them
  IdleByCause idle_by_cause{};                     // of the whole window
  std::map<std::string, int64_t> idle_by_what;     // keys "cause: what", largest 20
  std::vector<Gap> gaps;                           // the longest 100, longest first
  std::vector<KernelRow> kernels;                  // by total_ns, all of them
  std::vector<OperatorRow> operators;              // by device_ns, then host_self_ns; at most 500
  std::vector<GroupUse> groups;
  std::vector<CollectiveUse> collectives;  // by start
  LaunchFacts launch;
  PathFacts critical_path;
  std::vector<WorkPiece> work;  // by start; at most 20000
  int64_t recompute_ns = 0;
  std::string recompute_evidence;  // how it was seen; "" = not seen
  double flops = 0;  // of operators with recorded shapes, over the whole window; 0 = not known
  double flops_covered = 0;  // share of matmul-like device time whose operators' flops are known
  MemoryFacts memory;
  std::vector<CounterFacts> counters;                    // power, temperature, clocks, ...
  std::vector<int64_t> copy_bytes_to_host_device{0, 0};  // [device to host, host to device]
  int64_t profiler_ns = 0;            // host time in the profiler's own overhead events
  std::vector<std::string> notes;     // what is not known, and why
  std::vector<std::string> warnings;  // of the reader
};

RankFacts measure_rank(const RankTimeline& timeline);

}  // namespace vitrine

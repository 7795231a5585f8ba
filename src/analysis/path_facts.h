// What bounds a rank's steps, and how long they would take with one part of them made faster.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "analysis/kernel_class.h"

namespace vitrine {

// What the longest chain of dependent work is made of.
enum class PathPart : uint8_t {
  kHost,           // the host's own code and calls
  kDataLoading,    // the host in its data loader
  kLaunch,         // a launch on its way to the device
  kCompute,        // kernels that are no communication
  kCommunication,  // communication kernels; of a job whose ranks were matched: moving data
  kWaiting,        // in communication kernels, for other ranks (0 where they weren't matched)
  kCopy,           // copies and sets
  kBetween,        // from one kernel to the next, at most 10 us
  kUnknown         // the device began later than all that it is known to depend on
};
constexpr int kPathParts = 9;
const char* path_part_name(PathPart part);

// What is made faster. Everything else lasts as long as it did.
enum class Change : uint8_t {
  kFasterCommunication,  // moving data takes half the time; waiting for other ranks is not
                         // shortened
  kFasterHost,           // code and launch calls take half the time
  kInstantData,          // the data loader takes none
  kNoWaiting,            // no other rank is late
  kFasterClass           // kernels of one class take half the time
};

struct WhatIf {
  Change change = Change::kFasterCommunication;
  KernelClass kind = KernelClass::kOther;  // of kFasterClass
  int64_t span_ns = -1;                    // of the same steps; -1 = not known, `unknown` says why
  std::string unknown;
};
// "communication 2x faster", "matrix product kernels 2x faster".
std::string what_if_name(const WhatIf& what_if);

// A piece of the path inside one communication kernel.
struct PathPiece {
  int32_t use = -1;  // index into RankFacts::collectives
  int64_t begin_ns = 0, end_ns = 0;
};

// What lies between collectives, so that the steps can be timed again once other ranks are known:
// node i + 1 is the collective uses[i], node 0 the begin of the window, the last node its end. A
// node begins when all of its links allow: end of `from` + delay_ns.
struct PathLink {
  int32_t from = 0, to = 0;
  int64_t delay_ns = 0;
};

struct PathFacts {
  std::string unknown;  // why there is none; "" = there is one
  // From the end of what was launched before the first step (or its begin) to the end of the last
  // step's work; without step marks the window of device work. The path fills it without a gap.
  int64_t begin_ns = 0, end_ns = 0;
  int32_t first_step = -1, last_step = -1;
  int64_t steps = 0;                               // in the window; 0: no steps are marked
  std::array<int64_t, kPathParts> part_ns{};       // adds up to end_ns - begin_ns
  std::array<int64_t, kKernelClasses> class_ns{};  // adds up to the part of compute
  std::vector<WhatIf> what_if;                     // shortest first, not known ones last
  std::vector<std::string> inferred;               // dependencies that the trace does not state
  std::vector<PathPiece> communication;            // by begin
  // Until other ranks are matched; empty afterwards.
  std::vector<int32_t> uses;
  std::vector<PathLink> links;  // by `to`
  int64_t graph_begin_ns = 0;   // the time of node 0

  bool known() const { return unknown.empty() && end_ns > begin_ns; }
  int64_t span_ns() const { return end_ns - begin_ns; }
  // Of one step where there are steps, else of the window.
  int64_t per_step(int64_t ns) const { return steps > 1 ? ns / steps : ns; }
  const WhatIf* find(Change change) const;  // null: not asked, as there is none of it
};

}  // namespace vitrine

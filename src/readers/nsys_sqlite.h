// Reads Nsight Systems' reports as exported by `nsys export --type sqlite`.
#pragma once

#include <string>
#include <vector>

#include "timeline/timeline.h"

namespace vitrine {

// One timeline for each (process, device) that did device work, in order of device and process; a
// report without device work gives one for each process. The report names no ranks: they are
// numbered in that order (of a report with one, by the number after "rank" in the file's name), and
// a warning says so.
// - kernels: communication by name, else kKernel; graphs that were traced whole: one kernel
// - copies and sets: kCopy with bytes; synchronisation: kSync on its stream
// - runtime and driver calls: kRuntime on their threads, linked by correlation
// - NVTX ranges: operators of PyTorch's emit_nvtx kOperation, data loading kData, else kRegion.
//   Ranges with names like "step 3", "iteration" or "ProfilerStep#3" are the steps: of several such
//   names the one that covers most time; a warning says which.
// - collectives: of a communication kernel the range "nccl:..." around its launch, else its own
//   name. Message sizes only where the export has them as JSON: as elements of dtype "u8".
// start_ns is the report's own time; wall_anchor_ns the session's start. Tables and columns that
// the export lacks are named in `warnings`, as are the profiler's own warnings and errors. Throws
// IoError that names the file: see SqliteFile; a database of something else; nothing in it.
std::vector<RankTimeline> read_nsys(const std::string& path);

}  // namespace vitrine

// Cutting traces to what matters, and joining ranks' traces on one clock. What stays is passed on
// as it stands, with every argument.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace vitrine {

struct CutOptions {
  // Keeps what overlaps [from, to): nanoseconds since the first event that has a time.
  int64_t from_ns = std::numeric_limits<int64_t>::min();
  int64_t to_ns = std::numeric_limits<int64_t>::max();
  // Keeps steps first..last (the N of ProfilerStep#N): what the host did in their windows, and the
  // device work that it launched there, wherever that ran. -1 = by time alone.
  // A number that several recordings gave is kept in each of them.
  int64_t first_step = -1, last_step = -1;
  // Of a file that merge_traces wrote: keeps these ranks; empty = all.
  std::vector<int32_t> ranks;
};

struct CutResult {
  int64_t events_kept = 0, events_total = 0;
  int64_t events_damaged = 0;  // no JSON by themselves: left out
};

// One file to another (gzipped when it ends in ".gz"). Names of processes and threads stay. Throws
// IoError (reading, writing), ConfigError when nothing but names would be left (with what there
// is), or when ranks are asked for of a file that does not say which events are whose.
CutResult cut_trace(const std::string& path, const CutOptions& options, const std::string& output);

struct MergeInput {
  std::string path;
  int32_t rank = 0;
  // Added to its times as they stand it gives those of the first input: RankClock::offset_ns, which
  // holds the distance of their baseTimeNanoseconds too.
  int64_t offset_ns = 0;
};

// All into one file: times on the first input's clock, process numbers "<rank + 1>0000..." of their
// own with the rank in their names, correlation, flow and external numbers moved so that none of
// two ranks are equal. The key "mergedRanks" says which processes were whose, so that our reader
// takes the ranks apart again (readers/kineto.h). Throws IoError; ConfigError for two files of one
// rank, and for a file that holds several ranks already.
struct MergeResult {
  int64_t events = 0;
  int64_t events_damaged = 0;  // no JSON by themselves: left out
};
MergeResult merge_traces(const std::vector<MergeInput>& inputs, const std::string& output);

}  // namespace vitrine

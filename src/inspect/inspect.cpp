// A queue of files, a few readers, and what belongs to which rank.
#include "inspect/inspect.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <new>
#include <thread>
#include <utility>

#include "core/error.h"
#include "core/format.h"
#include "inspect/job_sums.h"
#include "readers/inputs.h"
#include "readers/kineto.h"
#include "readers/memory_snapshot.h"
#include "readers/nccl_log.h"
#include "readers/nsys_sqlite.h"
#include "readers/topology_text.h"

namespace vitrine {

namespace {

// What is kept of an allocator's snapshot, which itself can be as large as its file.
struct Snapshot {
  int32_t rank = -1;
  std::vector<std::string> warnings;
  MemoryFacts facts;
};

Snapshot measured(const std::string& path) {
  AllocatorSnapshot snapshot = read_memory_snapshot(path);
  Snapshot out{snapshot.rank, std::move(snapshot.warnings), measure_memory(snapshot)};
  for (std::string& warning : out.warnings) warning = path + ": " + warning;
  out.facts.notes.insert(out.facts.notes.begin(), "from " + path);
  return out;
}

// What the readers have gathered; entries stand at the place of their file, so that the outcome
// does not depend on who was quicker.
struct Gathered {
  std::vector<std::vector<RankFacts>> ranks;
  std::vector<std::vector<RankSums>> sums;  // as `ranks`
  std::vector<std::vector<Snapshot>> snapshots;
  std::vector<std::vector<Topology>> topologies;
  std::vector<std::vector<NcclFacts>> logs;
  std::vector<std::string> failures;  // "" = read

  explicit Gathered(size_t files)
      : ranks(files),
        sums(files),
        snapshots(files),
        topologies(files),
        logs(files),
        failures(files) {}
};

// The timelines of a trace; everything else goes to `out`.
std::vector<RankTimeline> read_one(const Input& input, size_t at, Gathered& out) {
  switch (input.kind) {
    case InputKind::kKineto:
    case InputKind::kNsys:
      return read_timelines(input);
    case InputKind::kMemorySnapshot:
      out.snapshots[at].push_back(measured(input.path));
      break;
    case InputKind::kNcclLog:
      out.logs[at].push_back(read_nccl_log(input.path));
      break;
    case InputKind::kTopology:
      out.topologies[at].push_back(read_topology(input.path));
      break;
    case InputKind::kRunFolder:
      break;  // its traces are inputs of their own
  }
  return {};
}

// A file that can't be read, or is too large for the memory there is, is one file's failure.
void take_one(const Input& input, size_t at, const InspectOptions& options, Gathered& out) {
  std::vector<RankTimeline> timelines;
  try {
    timelines = read_one(input, at, out);
    for (const RankTimeline& timeline : timelines) {
      out.sums[at].push_back(sums_of(timeline));
      out.ranks[at].push_back(measure_rank(timeline));
      out.ranks[at].back().path = input.path;
    }
  } catch (const IoError& error) {
    out.failures[at] = error.what();
  } catch (const std::bad_alloc&) {
    out.ranks[at].clear();
    out.failures[at] = input.path + " is too large for the memory of this machine";
  }
  if (!options.visit || !out.failures[at].empty()) return;
  for (const RankTimeline& timeline : timelines) options.visit(timeline, input);
}

void read_all(const std::vector<Input>& inputs, const InspectOptions& options, Gathered& out) {
  std::atomic<size_t> next{0};
  std::exception_ptr stopped;
  std::mutex mutex;
  const auto work = [&] {
    for (size_t at = next++; at < inputs.size(); at = next++) {
      try {
        take_one(inputs[at], at, options, out);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!stopped) stopped = std::current_exception();
        next = inputs.size();
      }
    }
  };
  const auto count =
      std::min(inputs.size(), static_cast<size_t>(std::max(1, options.files_at_once)));
  {
    std::vector<std::jthread> others;
    for (size_t i = 1; i < count; ++i) others.emplace_back(work);
    work();
  }
  if (stopped) std::rethrow_exception(stopped);
}

template <typename T>
std::vector<T> flatten(std::vector<std::vector<T>>& parts) {
  std::vector<T> out;
  for (auto& part : parts) {
    for (T& one : part) out.push_back(std::move(one));
  }
  return out;
}

// All ranks whose sums fit beside those before them.
std::vector<RankFacts> summable_ranks(Gathered& gathered, std::vector<std::string>& warnings) {
  std::vector<RankFacts> out;
  JobSums sums;
  for (size_t at = 0; at < gathered.ranks.size(); ++at) {
    for (size_t i = 0; i < gathered.ranks[at].size(); ++i) {
      RankFacts& rank = gathered.ranks[at][i];
      if (sums.add(gathered.sums[at][i])) {
        out.push_back(std::move(rank));
        continue;
      }
      warnings.push_back(
          format("left out: rank %d of %s has times or bytes so large that those of all ranks "
                 "can't be added up: the file is damaged",
                 rank.rank,
                 rank.path.c_str()));
    }
  }
  return out;
}

// An allocator's own account is finer than the profiler's events: it replaces them.
void give_snapshots(std::vector<Snapshot>& snapshots, JobFacts& job) {
  for (Snapshot& snapshot : snapshots) {
    RankFacts* owner = nullptr;
    for (RankFacts& rank : job.ranks) {
      if (rank.rank == snapshot.rank || (snapshot.rank < 0 && job.ranks.size() == 1)) owner = &rank;
    }
    std::vector<std::string>& warnings = owner != nullptr ? owner->warnings : job.warnings;
    for (std::string& warning : snapshot.warnings) warnings.push_back(std::move(warning));
    if (owner == nullptr) {
      job.loose_memory.push_back(std::move(snapshot.facts));
      continue;
    }
    if (snapshot.facts.capacity == 0) snapshot.facts.capacity = owner->memory.capacity;
    owner->memory = std::move(snapshot.facts);
  }
}

}  // namespace

std::vector<RankTimeline> read_timelines(const Input& input) {
  if (input.kind == InputKind::kNsys) return read_nsys(input.path);
  return read_kineto_ranks(input.path);
}

JobFacts inspect_job(const std::vector<std::string>& paths, const InspectOptions& options) {
  InputList list = find_inputs(paths);
  if (list.inputs.empty()) {
    throw IoError("there is nothing to read in " + join(paths, ", ") +
                  (list.warnings.empty() ? "" : ": " + list.warnings.front()));
  }
  Gathered gathered(list.inputs.size());
  read_all(list.inputs, options, gathered);

  std::vector<Snapshot> snapshots = flatten(gathered.snapshots);
  std::vector<Topology> topologies = flatten(gathered.topologies);
  std::vector<NcclFacts> logs = flatten(gathered.logs);
  std::vector<std::string> warnings = std::move(list.warnings);
  std::vector<RankFacts> ranks = summable_ranks(gathered, warnings);
  for (const std::string& failure : gathered.failures) {
    if (failure.empty()) continue;
    if (ranks.empty() && snapshots.empty() && topologies.empty() && logs.empty()) {
      throw IoError(failure);
    }
    warnings.push_back("left out: " + failure);
  }
  JobFacts job = measure_job(std::move(ranks), std::move(topologies), std::move(logs));
  give_snapshots(snapshots, job);
  job.warnings.insert(job.warnings.begin(), warnings.begin(), warnings.end());
  return job;
}

}  // namespace vitrine

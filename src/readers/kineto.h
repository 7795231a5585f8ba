// Reads Chrome-trace JSON in Kineto's dialect: PyTorch Profiler's traces, and those that
// timeline/chrome_writer.h writes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "timeline/timeline.h"

namespace vitrine {

struct KinetoOptions {
  // Keep the events of Python frames (with_stack), many and rarely wanted.
  bool python_functions = false;
  // Threads that parse, besides the calling one, which reads, inflates and joins. 1 or less: all in
  // the calling thread.
  int threads = 2;
  // The text is read in pieces of about this size, cut between events; what is read does not depend
  // on it.
  size_t chunk_bytes = size_t{1} << 20;
};

// One rank of a plain or gzipped file, read in chunks: memory is that of the timeline and of a few
// chunks. What becomes of an event (docs/formats/trace.md):
// - kernel: communication by its collective arguments or its name, else kKernel
// - gpu_memcpy, gpu_memset: kCopy, with `bytes`
// - cpu_op: kOperation, with `shapes`
// - cuda_runtime, cuda_driver: kRuntime; cuda_sync: kSync
// - user_annotation: kStep for ProfilerStep#N, kData for data loading, else kRegion
// - [memory]: allocations; our own traces give memory samples by category
// - C: counters, as "name" or "name: series"
// - other complete events: kHost; flows, instants and the profiler's own spans are left out
// Our own traces say themselves what a span is; the launches that the writer made up are left out.
//
// Times are exact: start_ns counts from wall_anchor_ns, which is baseTimeNanoseconds; files without
// that key have start_ns since the epoch and wall_anchor_ns 0. Device work belongs to the step in
// which it was launched. Spans are sorted by start, parents first. The rank is distributedInfo's,
// else the number after "rank" or "worker" in the file's name, else what the collectives say, else
// 0. A collective without "Seq" is numbered by its order in (group, lane); one without "Sent bytes"
// counts what a ring algorithm sends. Correlations are unique within the timeline, also where
// a file merged from several processes uses a number twice.
//
// groups: those of pg_config, in its order, then those that only collectives name.
// info: "device", "device.memory_bytes", "backend", "nccl_version", "record_shapes", "with_stack",
// "profile_memory", "world_size.known" ("yes" or "no"), "rank.known" ("trace", "file name",
// "collectives" or "no"), ...
//
// warnings: one sentence for each way in which the trace is not whole or not to be trusted: cut,
// damaged events (left out, or repaired), bad UTF-8 (as U+FFFD), times that can't be, device work
// without a launch or before it, several processes in one file, values that can't be, steps that
// share a number (each gets its own; names stay) or lie inside others (then regions), a second
// document behind the first, ...; with counts and byte offsets (into the inflated text).
//
// Throws IoError that names the file and the place: missing, empty, a folder, not JSON, JSON that
// is no trace, or cut or damaged so that no whole event is left. A sound trace whose list of events
// is empty is a timeline without spans.
RankTimeline read_kineto(const std::string& path, const KinetoOptions& options = {});

// The same of a file that several ranks were merged into (by `vitrine trace merge`, or by others
// where processes or collectives name their ranks): one timeline a rank, in order of rank. Of other
// files the one that read_kineto gives.
std::vector<RankTimeline> read_kineto_ranks(const std::string& path,
                                            const KinetoOptions& options = {});

// The same of a text in memory; `name` stands for the file's name.
RankTimeline read_kineto_text(std::string_view text,
                              const std::string& name,
                              const KinetoOptions& options = {});
std::vector<RankTimeline> read_kineto_ranks_text(std::string_view text,
                                                 const std::string& name,
                                                 const KinetoOptions& options = {});

}  // namespace vitrine

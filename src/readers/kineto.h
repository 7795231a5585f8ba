// Reads Chrome-trace JSON in Kineto's dialect: PyTorch Profiler's traces, and those that
// timeline/chrome_writer.h writes.
#pragma once

#include <string>

#include "timeline/timeline.h"

namespace vitrine {

struct KinetoOptions {
  // Keep the events of Python frames (with_stack), many and rarely wanted.
  bool python_functions = false;
};

// One rank of a plain or gzipped file. What becomes of an event (docs/formats/trace.md):
// - kernel: communication by its collective arguments or its name, else kKernel
// - gpu_memcpy, gpu_memset: kCopy
// - cpu_op: kOperation
// - cuda_runtime, cuda_driver: kRuntime; cuda_sync: kSync
// - user_annotation: kStep for ProfilerStep#N, kData for data loading, else kRegion
// - [memory]: counters "allocated bytes" and "reserved bytes" of each device, since PyTorch keeps
// no
//   categories; our own traces give memory samples by category
// - other complete events: kHost; flows, instants and the profiler's own spans are left out
// Our own traces say themselves what a span is; the launches that the writer made up are left out.
//
// Times are exact: start_ns counts from wall_anchor_ns, which is baseTimeNanoseconds; files without
// that key have start_ns since the epoch and wall_anchor_ns 0. Device work belongs to the step in
// which it was launched. Spans are sorted by start, parents first. The rank is distributedInfo's,
// else the number after "rank" in the file's name, else 0. A collective without "Seq" is numbered
// by its order in (group, lane); one without "Sent bytes" counts what a ring algorithm sends.
//
// info: "device", "device.memory_bytes", "backend", "nccl_version", ...; "reader.skipped" (events
// that are broken: no name, no time, beyond int64), "reader.negative_durations" (taken as 0) when
// not zero.
//
// Throws IoError that names the file and the place: missing, empty, cut or damaged gzip, not JSON,
// JSON that is no trace.
RankTimeline read_kineto(const std::string& path, const KinetoOptions& options = {});

}  // namespace vitrine

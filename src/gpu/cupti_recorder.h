// Records what the GPU does, by CUPTI: kernels, copies, sets, runtime calls and waits.
#pragma once

#include <memory>
#include <string>

#include "gpu/gpu_records.h"

namespace vitrine {

// From start() to stop(). The runner calls start() when a window opens, begin() and end() around
// what it issues, stop() when the window closes and the device is synchronised, then add_to() the
// timeline that Recorder::take() gave. One trace a process at a time. CUPTI is loaded by the first
// start(), so that runs without a trace need no libcupti; a run under another profiler has none,
// since CUPTI serves one client.
class GpuTrace {
 public:
  // Null when it can't be; `why` says so. Records of up to `max_bytes` are kept, later ones
  // counted.
  static std::unique_ptr<GpuTrace> start(std::string& why, size_t max_bytes = size_t{512} << 20);
  virtual ~GpuTrace() = default;

  // Around the issuing of one piece of work, by the thread that issues it; pieces nest, and kernels
  // belong to the innermost. Any thread. About a microsecond.
  virtual void begin(const GpuWork& work) = 0;
  virtual void end() = 0;

  // Records go on, those so far are dropped. Work must be done.
  virtual void forget() = 0;
  // Ends recording and fetches the rest. Work must be done: wait for the device first.
  virtual void stop() = 0;
  // After stop(). Empties the trace.
  virtual void add_to(RankTimeline& timeline) = 0;
};

// begin() and end() of a scope; nothing where `trace` is null.
class GpuWorkScope {
 public:
  GpuWorkScope(GpuTrace* trace, const GpuWork& work) : trace_(trace) {
    if (trace_) trace_->begin(work);
  }
  ~GpuWorkScope() {
    if (trace_) trace_->end();
  }
  GpuWorkScope(const GpuWorkScope&) = delete;
  GpuWorkScope& operator=(const GpuWorkScope&) = delete;

 private:
  GpuTrace* trace_;
};

}  // namespace vitrine

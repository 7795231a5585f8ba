// Looks ten times a second; ends everything after the first failure.
#include "comm/nccl/nccl_watch.h"

#include <nccl.h>

#include <algorithm>
#include <chrono>

#include "core/error.h"
#include "gpu/runtime.h"

namespace vitrine {

namespace {

constexpr std::chrono::milliseconds kEvery{100};

}  // namespace

NcclWatch::NcclWatch(int device) : device_(device), thread_([this] { run(); }) {}

NcclWatch::~NcclWatch() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void NcclWatch::add(Watched* target) {
  const std::lock_guard lock(targets_mutex_);
  targets_.push_back(target);
}

void NcclWatch::remove(Watched* target) {
  const std::lock_guard lock(targets_mutex_);
  std::erase(targets_, target);
}

void NcclWatch::fail(const std::string& why, int missing_rank) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = Failure{why, missing_rank};
    failed_ = true;
  }
  changed_.notify_all();
}

void NcclWatch::fail_with_suspect(const std::string& what_failed) {
  const World::Suspect suspect = host_->suspect();
  fail(what_failed + (suspect.sentence.empty() ? "" : ": " + suspect.sentence), suspect.rank);
}

void NcclWatch::check(const std::string& call) const {
  const std::lock_guard lock(mutex_);
  if (!failure_) return;
  throw CommError(call.empty() ? failure_->why : call + ": " + failure_->why,
                  failure_->missing_rank);
}

void NcclWatch::run() {
  cudaSetDevice(device_);
  // Looking at events here must not spoil another thread's graph capture.
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  cudaThreadExchangeStreamCaptureMode(&mode);
  bool ended = false;
  for (;;) {
    bool failed = false;
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, kEvery, [&] { return stop_ || (failure_ && !ended); });
      if (stop_) return;
      failed = failure_.has_value();
    }
    std::string found;
    {
      const std::lock_guard lock(targets_mutex_);
      if (failed) {
        ended = true;  // one that is made later finds the failure before its first call
        // In one group, so that all are told before any is waited for: a call of one may stand in a
        // stream behind that of another.
        ncclGroupStart();
        for (Watched* target : targets_) ended = target->end() && ended;
        ncclGroupEnd();
      } else {
        for (Watched* target : targets_) {
          if (found.empty()) found = target->look();
        }
      }
    }
    if (failed && !ended) std::this_thread::sleep_for(kEvery);
    if (!found.empty()) fail_with_suspect(found);
  }
}

}  // namespace vitrine

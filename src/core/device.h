// Where the tensors of one rank live, and who moves them: the host's memory, or an accelerator's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/dtype.h"

namespace vitrine {

// Work of one lane that was captured, and can be issued again as it was, on the same memory.
class CapturedWork {
 public:
  virtual ~CapturedWork() = default;
  // In the calling thread's lane, which must be the one it was captured in.
  virtual void issue() = 0;
};

// Work is issued by threads into lanes and done in order within a lane; the host does it at once, a
// GPU later. Marks order lanes among each other: mark(i) names the point reached by the calling
// thread's lane, wait(i) keeps that lane from going on before it. Calls are safe from any thread.
// Failures throw DeviceError (or OutOfMemory) that names the device.
class Device {
 public:
  virtual ~Device() = default;
  // "host", "cuda:0 NVIDIA H200".
  virtual const std::string& name() const = 0;
  // The CPU can read and write this memory.
  virtual bool is_host() const = 0;

  // Aligned to 256 bytes (the host: 64). Null when nothing is left. A released block may be handed
  // out again at once: a lane other than the one that released it then waits for that point.
  virtual void* allocate(size_t bytes) = 0;
  virtual void release(void* block, size_t bytes) noexcept = 0;
  // Bytes held from the system, used or kept for later.
  virtual size_t reserved_bytes() const = 0;

  // In the calling thread's lane. `device` pointers unless named otherwise.
  virtual void zero(void* to, size_t bytes) = 0;
  virtual void copy(void* to, const void* from, size_t bytes) = 0;
  // From host memory, which may be changed as soon as the call returns.
  virtual void upload(void* to, const void* host, size_t bytes) = 0;
  // To host memory; what came before in the lane is done, and the bytes are there, on return.
  virtual void download(void* host, const void* from, size_t bytes) = 0;
  virtual void convert(DType to, void* destination, DType from, const void* source, int64_t n) = 0;
  // sum += term, in fp32 at least, rounded once to dtype.
  virtual void add(DType dtype, void* sum, const void* term, int64_t count) = 0;

  // From now on the calling thread issues into this lane (0 = compute).
  virtual void enter_lane(int lane) = 0;
  virtual void mark(int index) = 0;
  virtual void wait(int index) = 0;
  // The point that the calling thread's lane has reached, for a lane that is not known yet; null on
  // the host, where it has passed. after() keeps the calling thread's lane from going on before it.
  virtual std::shared_ptr<void> point() { return {}; }
  virtual void after(const std::shared_ptr<void>& /*point*/) {}
  // The work before that point is done. Does not wait.
  virtual bool passed(const std::shared_ptr<void>& /*point*/) { return true; }
  // As point(), with a time: elapsed_ns() is what lies between two of them, once both have passed,
  // by the device's own clock. Null and 0 on the host.
  virtual std::shared_ptr<void> timed_point() { return {}; }
  virtual int64_t elapsed_ns(const std::shared_ptr<void>& /*from*/,
                             const std::shared_ptr<void>& /*to*/) {
    return 0;
  }
  // What the compute lane does between these two is counted as waiting, as its wait()s are.
  virtual void waiting_begins() {}
  virtual void waiting_ends() {}
  // Nanoseconds that the compute lane waited since the last call; known after synchronize(). 0 on
  // the host, which waits in its callers.
  virtual int64_t take_waited_ns() { return 0; }
  // Runs issue() once, and keeps what it issues in the calling thread's lane instead of doing it.
  // Null, with the reason in `why`, where that can't be: nothing was done then, and the lane is as
  // it was. Only work on the device's memory can be kept: what asks for memory, copies from or to
  // the host, marks or waits is such a reason, as is anything that issue() throws.
  virtual std::unique_ptr<CapturedWork> capture_work(const std::function<void()>& /*issue*/,
                                                     std::string& why) {
    why = "this device captures no work";
    return {};
  }
  // Where the scratch of operations in the calling thread's lane lies now: captured work holds the
  // address.
  virtual const void* lane_scratch() const { return nullptr; }
  // From now on it follows from which blocks are free, and from the lanes that freed them, what
  // allocate() gives, no longer from the order in which they were freed: a step that asks as the
  // one before gets the same addresses.
  virtual void order_free_blocks() {}
  // What was issued so far in the calling thread's lane is done.
  virtual void synchronize_lane() = 0;
  // Everything issued so far in every lane is done.
  virtual void synchronize() = 0;
};

// Ordinary memory: freed blocks are kept for the next, so that a step's buffers cost no page
// faults.
Device& host_device();

}  // namespace vitrine

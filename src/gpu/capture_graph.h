// Work of a lane as a CUDA graph: captured once, launched as often as its operands stay the same.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "core/device.h"

namespace vitrine::gpu {

// Device::capture_work() of the calling thread's stream. A graph holds kernels, sets and copies
// between places of the device's memory; a copy from or to the host would be repeated from a place
// that means something else by then, and is a reason to refuse.
std::unique_ptr<CapturedWork> capture_graph(const std::function<void()>& issue, std::string& why);

// Throws DeviceError, which ends the capture, where the calling thread captures.
void not_capturable(const char* what);
// The same for callers that may not throw: false where the calling thread does not capture.
bool spoil_capture(const char* what) noexcept;

// Held while a stream captures. Whoever waits for a whole device holds it too: waiting for a stream
// that captures ends the capture, and is itself an error.
std::mutex& capture_mutex();

// Where the workspace of the calling thread's stream lies (gpu/runtime.h); null before its first.
const void* workspace_now();

}  // namespace vitrine::gpu

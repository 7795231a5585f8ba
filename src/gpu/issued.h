// Whether a thread has issued anything to its GPU since it last looked.
#pragma once

#include <cstdint>

namespace vitrine::gpu {

// How often the calling thread asked for its stream() (gpu/runtime.h), which everything that is
// issued does: the same answer twice means that it issued nothing in between.
uint64_t streams_asked_for();

}  // namespace vitrine::gpu

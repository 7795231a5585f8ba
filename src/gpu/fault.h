// What kernels find wrong in values (an id outside the vocabulary): noted on the device, thrown at
// the next synchronisation.
#pragma once

#include <cstdint>

namespace vitrine::gpu {

// The first fault since the last check. Zero `limit`: none. In device memory.
struct Fault {
  int64_t limit;  // ids must be in [0, limit)
  int64_t place;  // flat index
  int64_t value;
  int32_t operation;  // index given by fault_operation()
};

// Of the calling thread's device.
Fault* fault_slot();
// A number for an operation's name, for kernels to note.
int32_t fault_operation(const char* name);
// Throws ShapeError when a fault was noted in what is done by now, and forgets it. Waits for the
// calling thread's stream.
void check_faults();

}  // namespace vitrine::gpu

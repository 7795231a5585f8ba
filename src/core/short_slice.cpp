// sched_setattr, which the C library does not wrap.
#include "core/short_slice.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace vitrine {
namespace {

// struct sched_attr of the kernel, in its first version.
struct SchedulingAttributes {
  uint32_t size = sizeof(SchedulingAttributes);
  uint32_t policy = 0;  // SCHED_OTHER, in which the run time is a slice
  uint64_t flags = 0;
  int32_t nice = 0;
  uint32_t priority = 0;
  uint64_t runtime_ns = 0;  // 0: the system's
  uint64_t deadline_ns = 0, period_ns = 0;
};

void set_slice([[maybe_unused]] uint64_t ns) {
#ifdef SYS_sched_setattr
  SchedulingAttributes now;
  if (syscall(SYS_sched_getattr, 0, &now, sizeof(now), 0) != 0 || now.policy != 0) return;
  now.flags = 0;
  now.runtime_ns = ns;
  syscall(SYS_sched_setattr, 0, &now, 0);
#endif
}

}  // namespace

ShortSlice::ShortSlice() { set_slice(100'000); }
ShortSlice::~ShortSlice() { set_slice(0); }

}  // namespace vitrine

// What the kernel says of a thread's slice, by its own call.
#include "core/short_slice.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <thread>

namespace vitrine {
namespace {

// The slice of the calling thread; 0 where the kernel tells none.
uint64_t slice_ns() {
  std::array<std::byte, 48> attributes{};
  if (syscall(SYS_sched_getattr, 0, attributes.data(), attributes.size(), 0) != 0) return 0;
  uint64_t runtime = 0;
  std::memcpy(&runtime, attributes.data() + 24, sizeof(runtime));
  return runtime;
}

TEST(ShortSlice, HoldsForTheThreadAndThoseThatItMakesUntilItEnds) {
  const uint64_t before = slice_ns();
  if (before == 0) GTEST_SKIP() << "this kernel has no slices of threads (Linux from 6.12)";
  uint64_t within = 0, made_within = 0;
  {
    const ShortSlice scope;
    within = slice_ns();
    std::thread([&] { made_within = slice_ns(); }).join();
  }
  EXPECT_EQ(within, 100'000U);
  EXPECT_EQ(made_within, 100'000U);
  EXPECT_EQ(slice_ns(), before);
}

}  // namespace
}  // namespace vitrine

// Threads that are waited for beside threads that compute.
#pragma once

namespace vitrine {

// While one lives, the calling thread, and threads that it makes, run soon after they are woken:
// they ask the scheduler for slices of 0.1 ms, so that a thread that computes for milliseconds
// makes way. Their share of the processors is what it was. For threads that move bytes and hand
// work on. Linux from 6.12; elsewhere nothing changes.
class ShortSlice {
 public:
  ShortSlice();
  ~ShortSlice();
  ShortSlice(const ShortSlice&) = delete;
  ShortSlice& operator=(const ShortSlice&) = delete;
};

}  // namespace vitrine

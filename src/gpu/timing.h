// Times of work on a GPU, by events, for benchmarks.
#pragma once

#include <cstdint>
#include <functional>

namespace vitrine::gpu {

// Nanoseconds of one issue(set), in the calling thread's stream: the median of `samples` rounds
// over all sets. Before each round prepare(set) runs for all sets untimed, which also gives the
// host a lead, so that what is timed are kernels and not launches. Two rounds warm up.
double median_ns(int sets,
                 int samples,
                 const std::function<void(int)>& prepare,
                 const std::function<void(int)>& issue);

// So many sets of operands of `bytes` that a round leaves nothing of them in the L2 cache.
int sets_beyond_cache(double bytes);

// Bytes a second, read plus written, of copies between two arrays of `bytes` each.
double copy_bandwidth(size_t bytes = size_t{1} << 30);

}  // namespace vitrine::gpu

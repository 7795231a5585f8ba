// Times of work on a GPU, by events, for benchmarks.
#pragma once

#include <cstdint>
#include <functional>

namespace vitrine::gpu {

// Nanoseconds of one issue(set), in the calling thread's stream: the median of `samples` rounds
// over all sets. Before each round prepare(set) runs for all sets untimed. Rounds are replays of a
// captured graph of at least twenty calls, so that kernels are timed and not launches; where
// capture is refused, plain loops. issue(set) must stand being repeated without prepare(set): its
// times may not depend on what it left in its operands.
double median_ns(int sets,
                 int samples,
                 const std::function<void(int)>& prepare,
                 const std::function<void(int)>& issue);

// So many sets of operands of `bytes` that a round leaves nothing of them in the L2 cache.
int sets_beyond_cache(double bytes);

// Bytes a second, read plus written, of copies that move `bytes`, half read and half written, with
// operands that rotate as those of median_ns(). Copies of a few megabytes are slower by what every
// kernel's start and end cost.
double copy_bandwidth(size_t bytes = size_t{1} << 31);

}  // namespace vitrine::gpu

// Compute threads of one rank. Work is cut by index, never by arrival, so results do not depend on
// timing.
#pragma once

#include <cstdint>
#include <functional>

namespace vitrine {

// Processors this process may use: affinity mask and cgroup quota.
int effective_cpus();

// Threads that parallel_for uses (default: effective_cpus()).
int compute_threads();
void set_compute_threads(int threads);

// Calls body(begin, end) on ranges that cover [0, count), each at least `grain` long where
// possible. Only the compute lane calls this; nested calls run on the caller alone.
void parallel_for(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& body);

}  // namespace vitrine

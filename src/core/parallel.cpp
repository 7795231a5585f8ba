// parallel_for over OpenMP's threads (shared with oneDNN), or serial without OpenMP.
#include "core/parallel.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <fstream>
#include <string>

#ifdef VITRINE_HAS_OPENMP
#include <omp.h>
#endif

namespace vitrine {
namespace {

// cgroup v2 quota, in processors; infinity when there is none.
double cgroup_cpus() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0) return INFINITY;
  return std::atof(quota.c_str()) / period;
}

std::atomic<int> threads{0};

}  // namespace

int effective_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const int allowed = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  const double quota = cgroup_cpus();
  return std::max(1, static_cast<int>(std::min(static_cast<double>(allowed), std::ceil(quota))));
}

int compute_threads() {
  if (threads == 0) set_compute_threads(effective_cpus());
  return threads;
}

void set_compute_threads(int count) {
  threads = std::max(1, count);
#ifdef VITRINE_HAS_OPENMP
  omp_set_num_threads(threads);
  omp_set_max_active_levels(1);
#endif
}

void parallel_for(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& body) {
  if (count <= 0) return;
#ifdef VITRINE_HAS_OPENMP
  const int64_t pieces = std::min<int64_t>(
      compute_threads(), std::max<int64_t>(1, count / std::max<int64_t>(1, grain)));
  if (pieces > 1 && !omp_in_parallel()) {
#pragma omp parallel num_threads(static_cast <int>(pieces))
    {
      const int64_t piece = omp_get_thread_num();
      const int64_t team = omp_get_num_threads();
      const int64_t begin = count * piece / team, end = count * (piece + 1) / team;
      if (begin < end) body(begin, end);
    }
    return;
  }
#else
  (void)grain;
#endif
  body(0, count);
}

}  // namespace vitrine

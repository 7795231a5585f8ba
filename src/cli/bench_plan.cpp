// Speed of the planner on one core: memory checks, simulations, a whole search.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>

#include "cli/benches.h"
#include "core/format.h"
#include "core/json.h"
#include "plan/search.h"

namespace vitrine {
namespace {

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
// Of this thread: a busy machine does not make the planner slower.
double cpu_s() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Strategies of GPT-175B on 1,024 cards: 16 stages, 64 micro-batches, every schedule.
std::vector<ClusterStrategy> strategies() {
  std::vector<ClusterStrategy> out;
  for (const PipelineKind kind : {PipelineKind::kGPipe,
                                  PipelineKind::k1F1B,
                                  PipelineKind::kInterleaved,
                                  PipelineKind::kZbH1,
                                  PipelineKind::kZbH2,
                                  PipelineKind::kZbV}) {
    for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
      ClusterStrategy s;
      s.mesh = {8, 8, 16, 1};
      s.sequence = 2048;
      s.sequence_parallel = true;
      s.global_batch = 8 * 64;
      s.pipeline = kind;
      s.interleave = kind == PipelineKind::kInterleaved ? 3 : 1;
      s.recompute = recompute;
      out.push_back(s);
    }
  }
  return out;
}

// Calls a CPU second of `call` over all strategies, for about a second, after one round to warm up.
template <typename F>
double rate(const std::vector<ClusterStrategy>& all, F&& call) {
  for (const ClusterStrategy& s : all) call(s);
  const double begin = cpu_s();
  size_t calls = 0;
  double spent = 0;
  do {
    for (const ClusterStrategy& s : all) call(s);
    calls += all.size();
    spent = cpu_s() - begin;
  } while (spent < 1);
  return static_cast<double>(calls) / spent;
}

}  // namespace

int bench_plan(const BenchOptions& options) {
  Planner planner(model_shape("gpt-175b"), make_cluster("1024xA100-80GB"));
  const std::vector<ClusterStrategy> all = strategies();
  const double memory = rate(all, [&](const ClusterStrategy& s) { planner.fits(s); });
  const double simulations = rate(all, [&](const ClusterStrategy& s) { planner.predict(s); });
  Json by_schedule = Json::object();
  for (const ClusterStrategy& s : all) {
    if (s.recompute != Recompute::kNone) continue;
    by_schedule[pipeline_name(s.pipeline)] =
        rate({s}, [&](const ClusterStrategy& one) { planner.predict(one); });
  }
  const double begin = now_s(), cpu_begin = cpu_s();
  Planner large(model_shape("llama3-405b"), make_cluster("16384xH100"));
  SearchSpace space;
  space.base.sequence = 8192;
  space.base.global_batch = 2048;
  const SearchResult found = search_strategies(large, space);
  const double search = now_s() - begin, search_cpu = cpu_s() - cpu_begin;
  if (options.json) {
    std::printf("%s\n",
                Json{{"memory_checks_per_s", memory},
                     {"simulations_per_s", simulations},
                     {"simulations_per_s_by_schedule", by_schedule},
                     {"search_s", search},
                     {"search_cpu_s", search_cpu},
                     {"search_considered", found.considered},
                     {"search_simulated", found.simulated}}
                    .dump(1)
                    .c_str());
    return 0;
  }
  std::printf("memory checks          %10.0f a CPU second\n", memory);
  std::printf("simulations            %10.0f a CPU second (16 stages, 64 micro-batches)\n",
              simulations);
  for (const auto& [name, value] : by_schedule.items()) {
    std::printf("  %-20s %10.0f\n", name.c_str(), value.get<double>());
  }
  std::printf(
      "search, 405B on 16,384 %10.2f s (%.2f s of CPU; %zu strategies, %zu fit, %zu simulated)\n",
      search,
      search_cpu,
      found.considered,
      found.fit,
      found.simulated);
  return 0;
}

}  // namespace vitrine

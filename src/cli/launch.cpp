// Starting of ranks.
#include "cli/launch.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "cli/terminal.h"
#include "comm/launcher.h"
#include "comm/nccl/nccl.h"
#include "core/error.h"
#include "core/format.h"
#include "core/parallel.h"
#include "gpu/gpu.h"

namespace vitrine {
namespace {

// What every rank would find, said once and before there are logs. Threads that the driver starts
// here must not take the signals that the launcher waits for.
void check_gpus(int ranks, int ranks_per_gpu) {
  struct AllSignalsBlocked {
    sigset_t before{};
    AllSignalsBlocked() {
      sigset_t all;
      sigfillset(&all);
      pthread_sigmask(SIG_BLOCK, &all, &before);
    }
    ~AllSignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before, nullptr); }
  } const blocked;
  const size_t gpus = gpu_devices().size();  // throws where there is none
  if (static_cast<size_t>(ranks) > gpus * static_cast<size_t>(ranks_per_gpu)) {
    throw DeviceError(
        format("%d ranks want a GPU each, this process can see %zu: fewer --ranks, or "
               "look at CUDA_VISIBLE_DEVICES",
               ranks,
               gpus));
  }
}

}  // namespace

int world_size(int asked) {
  const RankEnvironment environment = rank_environment();
  if (environment.size > 1 && asked > 1 && environment.size != asked) {
    throw UsageError("--ranks asks for " + std::to_string(asked) +
                     " ranks, but this process was started as one of " +
                     std::to_string(environment.size) +
                     " (WORLD_SIZE): leave --ranks out under a launcher");
  }
  return std::max(environment.size, asked);
}

int run_ranks(int ranks,
              const CommandLine& line,
              const std::string& log_folder,
              double timeout_seconds,
              const std::string& device,
              const std::function<int(World*)>& work) {
  const RankEnvironment environment = rank_environment();
  if (environment.size == 1 && ranks > 1) {
    if (device == "gpu") check_gpus(ranks, environment.ranks_per_gpu);
    LaunchOptions options;
    options.ranks = ranks;
    options.arguments = line.arguments;
    options.log_folder = log_folder;
    options.append_logs =
        std::find(line.arguments.begin(), line.arguments.end(), "--resume") != line.arguments.end();
    const LaunchResult result = launch_ranks(options);
    if (result.ok()) return 0;
    std::fprintf(stderr, "error: %s\n", result.summary.c_str());
    if (result.failed_rank > 0 && !result.log_tail.empty()) {
      std::fprintf(stderr,
                   "last lines of %s/rank%d.log:\n%s\n",
                   log_folder.c_str(),
                   result.failed_rank,
                   result.log_tail.c_str());
    }
    return result.signal ? 128 + result.signal : 1;
  }
  const char* threads = std::getenv("OMP_NUM_THREADS");
  set_compute_threads(threads
                          ? std::atoi(threads)
                          : std::max(1, effective_cpus() / std::max(1, environment.local_size)));
  install_log_sink();
  if (environment.size == 1) return work(nullptr);
  const auto timeout = std::chrono::milliseconds(static_cast<int64_t>(timeout_seconds * 1000));
  const std::unique_ptr<World> world = device == "gpu" ? make_nccl_world(environment, timeout)
                                                       : make_gloo_world(environment, timeout);
  try {
    return work(world.get());
  } catch (const CommError& error) {
    const World::Suspect suspect = world->suspect();
    print_error(std::string(error.what()) +
                (suspect.sentence.empty() ? "" : "; " + suspect.sentence));
    world->abort(error.what());
    return 1;
  } catch (const std::exception& error) {
    print_error(error.what());
    world->abort(error.what());
    return 1;
  }
}

}  // namespace vitrine

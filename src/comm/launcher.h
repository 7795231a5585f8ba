// Starts the ranks of one host as processes, watches over them, and says how they ended.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace vitrine {

constexpr int kMostLocalRanks = 1024;

struct LaunchOptions {
  int ranks = 1;
  std::string executable = "/proc/self/exe";
  std::vector<std::string> arguments;  // without the program's name
  std::filesystem::path log_folder;    // gets rank0.log, rank1.log, ...; made where it is missing
  // Earlier logs of the folder go on instead of being replaced (a resumed run).
  bool append_logs = false;
  // Set for every rank besides those below; wins over what the launcher itself was given.
  std::vector<std::pair<std::string, std::string>> environment;
  // After the first failure (or a signal): how long the others may take to stop by themselves, and
  // then how long from SIGTERM to SIGKILL.
  std::chrono::milliseconds grace{15000};
  std::chrono::milliseconds kill_after{5000};
  // Where rank 0's output goes besides its log; -1 for nowhere.
  int out_fd = 1, error_fd = 2;
};

struct RankExit {
  int exit_code = -1;          // -1 when ended by a signal
  int signal = 0;              // 0 when it exited
  bool stopped_by_us = false;  // did not stop within the grace period
  bool ok() const { return exit_code == 0; }
};

struct LaunchResult {
  std::vector<RankExit> ranks;
  int failed_rank = -1;  // the first in time; -1 when none failed
  int signal = 0;        // SIGINT or SIGTERM that the launcher was sent and passed on
  std::string summary;   // "rank 2 was killed by signal 9 (Killed) after 12.3 s; ..."
  std::string log_tail;  // last lines of the failed rank's log
  bool ok() const { return failed_rank < 0 && signal == 0; }
};

// Of GNU's OpenMP, some 20 to 100 us: a thread that waits for the next operation looks so often
// before it sleeps.
inline constexpr const char* kOpenMpSpins = "10000";

// Blocks until every rank has ended. Ranks get RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE,
// MASTER_ADDR (127.0.0.1), MASTER_PORT (a free one) and, unless set already, OMP_NUM_THREADS (this
// process's CPUs shared out) and OMP_WAIT_POLICY=passive with short spins. They die with the
// launcher. Call it from a thread that lives until the end, before other threads exist: SIGINT,
// SIGTERM and SIGCHLD are blocked in it meanwhile. Throws IoError when a log or the program cannot
// be opened, ConfigError below 1 and above kMostLocalRanks ranks.
LaunchResult launch_ranks(const LaunchOptions& options);

}  // namespace vitrine

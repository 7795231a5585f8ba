// The launcher: what ranks are given, their logs, and how it ends when one of them does.
#include "comm/launcher.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <functional>
#include <thread>

#include "comm/temporary_folder.h"
#include "core/error.h"

namespace vitrine {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::read_file;
using testing::TemporaryFolder;

LaunchOptions options_for(const TemporaryFolder& folder,
                          int ranks,
                          const std::string& body,
                          int victim = -1) {
  LaunchOptions options;
  options.ranks = ranks;
  options.arguments = {"--rank-body", body};
  options.environment = {{"VITRINE_TEST_VICTIM", std::to_string(victim)}, {"EXTRA", "given"}};
  options.log_folder = folder.path() / "log";
  options.out_fd = options.error_fd = -1;
  return options;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

bool happens(const std::function<bool()>& condition) {
  const auto end = steady_clock::now() + std::chrono::seconds(20);
  while (!condition() && steady_clock::now() < end) std::this_thread::sleep_for(milliseconds(10));
  return condition();
}

TEST(Launcher, GivesEachRankItsPlaceAndItsLog) {
  const TemporaryFolder folder;
  const LaunchResult result = launch_ranks(options_for(folder, 3, "print_environment"));
  EXPECT_TRUE(result.ok()) << result.summary;
  EXPECT_EQ(result.summary, "3 ranks finished");
  for (int r = 0; r < 3; ++r) {
    const std::string rank = std::to_string(r);
    const std::string log = read_file(folder.path() / "log" / ("rank" + rank + ".log"));
    EXPECT_TRUE(contains(log,
                         "RANK=" + rank + " WORLD_SIZE=3 LOCAL_RANK=" + rank +
                             " LOCAL_WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 "))
        << log;
    EXPECT_TRUE(contains(log, "OMP_WAIT_POLICY=passive EXTRA=given port")) << log;
    EXPECT_FALSE(contains(log, "OMP_NUM_THREADS= ")) << log;
    EXPECT_TRUE(contains(log, "on standard error")) << log;
  }
}

// A slip of the finger must not fill the host with processes.
TEST(Launcher, RefusesMoreRanksThanAHostStarts) {
  const TemporaryFolder folder;
  for (const int ranks : {0, kMostLocalRanks + 1, 100'000}) {
    EXPECT_THROW(launch_ranks(options_for(folder, ranks, "print_environment")), ConfigError);
  }
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "log/rank0.log"));
}

TEST(Launcher, AppendsToEarlierLogsWhenAsked) {
  const TemporaryFolder folder;
  LaunchOptions options = options_for(folder, 2, "print_environment");
  ASSERT_TRUE(launch_ranks(options).ok());
  const std::string once = read_file(folder.path() / "log/rank1.log");
  options.append_logs = true;
  ASSERT_TRUE(launch_ranks(options).ok());
  const std::string twice = read_file(folder.path() / "log/rank1.log");
  EXPECT_TRUE(twice.starts_with(once));
  EXPECT_GT(twice.size(), once.size());
  options.append_logs = false;
  ASSERT_TRUE(launch_ranks(options).ok());
  EXPECT_LT(read_file(folder.path() / "log/rank1.log").size(), twice.size());
}

TEST(Launcher, PassesOnlyRankZerosOutputThrough) {
  const TemporaryFolder folder;
  LaunchOptions options = options_for(folder, 2, "print_environment");
  int out[2], error[2];
  ASSERT_EQ(pipe(out), 0);
  ASSERT_EQ(pipe(error), 0);
  options.out_fd = out[1];
  options.error_fd = error[1];
  launch_ranks(options);
  char text[4096];
  const ssize_t n = read(out[0], text, sizeof(text));
  const std::string seen(text, static_cast<size_t>(n));
  EXPECT_TRUE(contains(seen, "RANK=0")) << seen;
  EXPECT_FALSE(contains(seen, "RANK=1")) << seen;
  const ssize_t m = read(error[0], text, sizeof(text));
  EXPECT_EQ(std::string(text, static_cast<size_t>(m)), "on standard error\n");
  for (const int fd : {out[0], out[1], error[0], error[1]}) close(fd);
}

TEST(Launcher, ReportsTheExitCodeAndTheEndOfTheLogOfTheRankThatFailed) {
  const TemporaryFolder folder;
  const LaunchResult result = launch_ranks(options_for(folder, 3, "fail", 1));
  EXPECT_FALSE(result.ok());
  EXPECT_EQ(result.failed_rank, 1);
  EXPECT_EQ(result.ranks[1].exit_code, 42);
  EXPECT_EQ(result.ranks[0].exit_code, 0);
  EXPECT_TRUE(contains(result.summary, "rank 1 exited with code 42 after ")) << result.summary;
  EXPECT_TRUE(contains(result.summary, "rank1.log")) << result.summary;
  EXPECT_TRUE(result.log_tail.starts_with("line 80\n")) << result.log_tail;
  EXPECT_TRUE(result.log_tail.ends_with("line 99\n")) << result.log_tail;
}

TEST(Launcher, NamesTheSignalThatKilledARank) {
  const TemporaryFolder folder;
  const LaunchResult result = launch_ranks(options_for(folder, 1, "kill_itself", 0));
  EXPECT_EQ(result.ranks[0].signal, SIGKILL);
  EXPECT_TRUE(contains(result.summary, "rank 0 was killed by signal 9 (Killed)")) << result.summary;
}

TEST(Launcher, KillsRanksThatNeitherStopNorObey) {
  const TemporaryFolder folder;
  LaunchOptions options = options_for(folder, 3, "hang", 2);
  options.grace = milliseconds(300);
  options.kill_after = milliseconds(300);
  const auto start = steady_clock::now();
  const LaunchResult result = launch_ranks(options);
  EXPECT_LT(steady_clock::now() - start, std::chrono::seconds(20));
  EXPECT_EQ(result.failed_rank, 2);
  EXPECT_EQ(result.ranks[0].signal, SIGKILL);
  EXPECT_TRUE(result.ranks[0].stopped_by_us);
  EXPECT_TRUE(
      contains(result.summary, "rank 1 was killed by signal 9 (Killed), as it did not stop"))
      << result.summary;
}

TEST(Launcher, SaysWhatItCannotStart) {
  const TemporaryFolder folder;
  LaunchOptions options = options_for(folder, 2, "fail");
  options.executable = (folder.path() / "missing").string();
  try {
    launch_ranks(options);
    ADD_FAILURE();
  } catch (const IoError& error) {
    EXPECT_TRUE(contains(error.what(), "missing: No such file")) << error.what();
  }
  options.ranks = 0;
  EXPECT_THROW(launch_ranks(options), ConfigError);
}

// A launcher as a process of its own. Returns once its ranks run; their process ids are in `ranks`.
pid_t start_launcher(const TemporaryFolder& folder, std::vector<pid_t>& ranks) {
  const pid_t pid = fork();
  if (pid == 0) {
    setenv("VITRINE_TEST_LOGS", folder.path().c_str(), 1);
    const int out = open((folder.path() / "launcher.log").c_str(), O_WRONLY | O_CREAT, 0600);
    dup2(out, 1);
    execl("/proc/self/exe", "comm_dist_test", "--rank-body", "launch", nullptr);
    _exit(127);
  }
  for (const char* log : {"rank0.log", "rank1.log"}) {
    const auto text = [&] { return read_file(folder.path() / log); };
    EXPECT_TRUE(happens([&] { return contains(text(), "pid ") && text().ends_with("\n"); }));
    ranks.push_back(std::atoi(text().substr(4).c_str()));
  }
  return pid;
}

TEST(Launcher, PassesSignalsOn) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const TemporaryFolder folder;
    std::vector<pid_t> ranks;
    const pid_t launcher = start_launcher(folder, ranks);
    kill(launcher, signal);
    int status = 0;
    waitpid(launcher, &status, 0);
    EXPECT_EQ(WEXITSTATUS(status), signal);
    for (const char* log : {"rank0.log", "rank1.log"}) {
      const std::string text = read_file(folder.path() / log);
      EXPECT_TRUE(contains(text, "got signal " + std::to_string(signal))) << text;
    }
  }
}

TEST(Launcher, RanksDieWithIt) {
  const TemporaryFolder folder;
  std::vector<pid_t> ranks;
  const pid_t launcher = start_launcher(folder, ranks);
  kill(launcher, SIGKILL);
  waitpid(launcher, nullptr, 0);
  for (const pid_t rank : ranks) {
    ASSERT_GT(rank, 1);
    // An orphan that no one reaps stays as a zombie, which is dead enough.
    EXPECT_TRUE(happens([&] {
      const std::string state = read_file("/proc/" + std::to_string(rank) + "/stat");
      return state.empty() || contains(state, ") Z ");
    }));
  }
}

}  // namespace
}  // namespace vitrine

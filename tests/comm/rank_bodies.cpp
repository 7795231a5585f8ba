// Ranks of the multi-process tests, and the main() that chooses between them and GoogleTest.
#include "comm/rank_bodies.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <numeric>
#include <thread>

#include "comm/collective_checks.h"
#include "comm/communicator.h"
#include "comm/launcher.h"
#include "core/error.h"

namespace vitrine::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

std::vector<int> everyone(const World& world) {
  std::vector<int> all(static_cast<size_t>(world.size()));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

double seconds_since(steady_clock::time_point start) {
  return std::chrono::duration<double>(steady_clock::now() - start).count();
}

// Reports a CommError as "missing R after S s: text" and returns 3.
int report(const std::function<void()>& call) {
  const auto start = steady_clock::now();
  try {
    call();
  } catch (const CommError& error) {
    std::printf(
        "missing %d after %.1f s: %s\n", error.missing_rank(), seconds_since(start), error.what());
    return 3;
  }
  std::printf("no error\n");
  return 0;
}

int collectives(World& world) {
  check_collectives(*world.group(everyone(world), "all"));
  // A second lane of the same ranks, used at the same time from another thread.
  auto gather = world.group(everyone(world), "gather"),
       reduce = world.group(everyone(world), "reduce");
  std::string error;
  std::thread other([&] {
    try {
      check_collectives(*gather);
    } catch (const std::exception& e) {
      error = e.what();
    }
  });
  check_collectives(*reduce);
  other.join();
  if (!error.empty()) throw Error(error);
  // Even and odd ranks apart.
  std::vector<int> mine;
  for (int r = world.rank() % 2; r < world.size(); r += 2) mine.push_back(r);
  check_collectives(*world.group(mine, "half"));
  std::printf("all collectives are right\n");
  return 0;
}

// Reduces 20 MB for ever; rank 2 is killed in the middle of it.
int killed(World& world) {
  auto group = world.group(everyone(world), "reduce");
  group->set_context(7, "reduce of body.3");
  std::vector<float> data(5'000'000, 1.f);
  group->barrier();
  std::thread killer;
  if (world.rank() == 2) {
    killer = std::thread([] {
      std::this_thread::sleep_for(milliseconds(300));
      kill(getpid(), SIGKILL);
    });
  }
  const int code = report([&] {
    for (;;) group->all_reduce(data.data(), 5'000'000, DType::kF32);
  });
  const World::Suspect suspect = world.suspect();
  std::printf("suspect %d: %s\n", suspect.rank, suspect.sentence.c_str());
  if (killer.joinable()) killer.join();
  return code;
}

// Rank VITRINE_TEST_STOPPED stops like a hanging process before its third call.
int stopped(World& world) {
  const int victim = std::atoi(std::getenv("VITRINE_TEST_STOPPED"));
  auto group = world.group(everyone(world), "gather");
  std::vector<float> data(1000, 1.f);
  for (int step = 0; step < 2; ++step) {
    world.progress(step, "gather of body.0");
    group->set_context(step, "gather of body.0");
    group->all_reduce(data.data(), 1000, DType::kF32);
  }
  std::this_thread::sleep_for(milliseconds(600));  // lets every rank report
  if (world.rank() == victim) raise(SIGSTOP);
  world.progress(2, "gather of body.1");
  group->set_context(2, "gather of body.1");
  return report([&] { group->all_reduce(data.data(), 1000, DType::kF32); });
}

// Rank 1 computes too long, while its process is well.
int late(World& world) {
  auto group = world.group(everyone(world), "reduce");
  world.progress(4, "backward of body.2");
  std::this_thread::sleep_for(milliseconds(600));
  if (world.rank() == 1) std::this_thread::sleep_for(milliseconds(5000));
  world.progress(4, "reduce of body.2");
  group->set_context(4, "reduce of body.2");
  return report([&] { group->barrier(); });
}

int disagree(World& world) {
  auto group = world.group(everyone(world), "all");
  std::vector<std::byte> in(world.rank() == 0 ? 100 : 80), out(in.size() * 2);
  return report([&] { group->all_gather(in, out); });
}

// Rank 1 aborts while others wait in two lanes, one of them in the middle of a transfer.
int aborted(World& world) {
  auto gather = world.group(everyone(world), "gather"),
       reduce = world.group(everyone(world), "reduce");
  std::vector<std::byte> data(1000);
  if (world.rank() == 1) {
    std::this_thread::sleep_for(milliseconds(300));
    world.abort("loss is not a number");
    return report([&] { gather->barrier(); });
  }
  int other = 0;
  std::thread lane([&] { other = report([&] { reduce->receive(data, 1); }); });
  const int code = report([&] { gather->barrier(); });
  lane.join();
  return code == 3 && other == 3 ? 3 : 1;
}

// Rank 1 aborts while nobody is in a collective; the listener says so.
int told(World& world) {
  if (world.rank() == 1) world.abort("loss is not a number");
  std::this_thread::sleep_for(milliseconds(1500));
  return 0;
}

// 20 MB a rank, as one layer's gradients: milliseconds a call and CPU seconds of this process.
int bench(World& world) {
  auto group = world.group(everyone(world), "all");
  const int64_t count = 5'000'000 / world.size() * world.size();
  const size_t piece = static_cast<size_t>(count / world.size()) * 4;
  std::vector<float> data(static_cast<size_t>(count), 1.f), out(static_cast<size_t>(count));
  const auto measure = [&](const char* what, const std::function<void()>& call) {
    for (int i = 0; i < 3; ++i) call();
    group->barrier();
    rusage before{}, after{};
    getrusage(RUSAGE_SELF, &before);
    const auto start = steady_clock::now();
    constexpr int kTimes = 20;
    for (int i = 0; i < kTimes; ++i) call();
    const double ms = seconds_since(start) * 1e3 / kTimes;
    getrusage(RUSAGE_SELF, &after);
    const auto cpu = [](const rusage& u) {
      return static_cast<double>(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
             static_cast<double>(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
    };
    std::printf(
        "%-28s %7.2f ms, %7.2f ms of CPU\n", what, ms, (cpu(after) - cpu(before)) * 1e3 / kTimes);
  };
  measure("reduce_scatter of 20 MB f32", [&] {
    group->reduce_scatter(data.data(), out.data(), count / world.size(), DType::kF32);
  });
  measure("all_gather to 20 MB", [&] {
    auto all = std::as_writable_bytes(std::span(out));
    group->all_gather(all.subspan(piece * static_cast<size_t>(world.rank()), piece), all);
  });
  measure("barrier", [&] { group->barrier(); });
  auto second = world.group(everyone(world), "second");
  std::vector<float> more(static_cast<size_t>(count), 1.f);
  measure("both at once, in two lanes", [&] {
    std::thread lane([&] {
      auto all = std::as_writable_bytes(std::span(more));
      second->all_gather(all.subspan(piece * static_cast<size_t>(world.rank()), piece), all);
    });
    group->reduce_scatter(data.data(), out.data(), count / world.size(), DType::kF32);
    lane.join();
  });
  return 0;
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Bodies for tests of the launcher: no communication.
const std::map<std::string, std::function<int()>>& plain_bodies() {
  static const bool victim = variable("RANK") == variable("VITRINE_TEST_VICTIM");
  const auto say = [](const std::string& text) {
    std::printf("%s\n", text.c_str());
    std::fflush(stdout);
  };
  static const std::map<std::string, std::function<int()>> bodies = {
      {"print_environment",
       [say] {
         std::string line;
         for (const char* name : {"RANK",
                                  "WORLD_SIZE",
                                  "LOCAL_RANK",
                                  "LOCAL_WORLD_SIZE",
                                  "MASTER_ADDR",
                                  "OMP_NUM_THREADS",
                                  "OMP_WAIT_POLICY",
                                  "EXTRA"}) {
           line += std::string(name) + "=" + variable(name) + " ";
         }
         say(line + (variable("MASTER_PORT") > "0" ? "port" : "no port"));
         std::fprintf(stderr, "on standard error\n");
         return 0;
       }},
      {"fail",
       [say] {
         if (!victim) return 0;
         for (int i = 0; i < 100; ++i) say("line " + std::to_string(i));
         return 42;
       }},
      {"kill_itself",
       [] {
         if (victim) raise(SIGKILL);
         return 5;
       }},
      {"hang",  // the victim fails, the others neither stop by themselves nor at SIGTERM
       [] {
         if (victim) return 1;
         std::signal(SIGTERM, SIG_IGN);
         for (;;) pause();
       }},
      {"wait_for_signal",
       [say] {
         static volatile std::sig_atomic_t got = 0;
         const auto note = [](int signal) { got = signal; };
         std::signal(SIGINT, note);
         std::signal(SIGTERM, note);
         say("pid " + std::to_string(getpid()));
         for (int i = 0; got == 0 && i < 2000; ++i) usleep(10000);
         say("got signal " + std::to_string(static_cast<int>(got)));
         return got == 0 ? 1 : 0;
       }},
      {"launch",  // a launcher that a test can kill or send signals to
       [] {
         LaunchOptions options;
         options.ranks = 2;
         options.arguments = {"--rank-body", "wait_for_signal"};
         options.log_folder = variable("VITRINE_TEST_LOGS");
         const LaunchResult result = launch_ranks(options);
         std::printf("%s\n", result.summary.c_str());
         return result.signal;
       }},
  };
  return bodies;
}

}  // namespace

int run_rank_body(const std::string& name) {
  if (const auto plain = plain_bodies().find(name); plain != plain_bodies().end()) {
    return plain->second();
  }
  const std::map<std::string, std::function<int(World&)>> bodies = {{"collectives", collectives},
                                                                    {"killed", killed},
                                                                    {"stopped", stopped},
                                                                    {"late", late},
                                                                    {"disagree", disagree},
                                                                    {"aborted", aborted},
                                                                    {"told", told},
                                                                    {"bench", bench}};
  const char* timeout = std::getenv("VITRINE_TEST_TIMEOUT_MS");
  const auto tell = [](const std::string& why, int missing_rank) {
    std::printf("told of %d: %s\n", missing_rank, why.c_str());
  };
  try {
    const auto world = make_gloo_world(rank_environment(),
                                       milliseconds(timeout ? std::atoi(timeout) : 30000),
                                       name == "told" ? FailureListener(tell) : FailureListener());
    return bodies.at(name)(*world);
  } catch (const std::exception& error) {
    std::printf("error: %s\n", error.what());
    return 1;
  }
}

}  // namespace vitrine::testing

int main(int argc, char** argv) {
  if (argc == 3 && std::string(argv[1]) == "--rank-body") {
    // Line by line: a rank that the launcher ends while it still serves the store has spoken.
    std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
    return vitrine::testing::run_rank_body(argv[2]);
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

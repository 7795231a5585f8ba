// NCCL's collectives on one to all GPUs of this machine, and what the ranks say of one that is
// late, gone or has aborted.
#include "comm/nccl/nccl.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <thread>

#include "comm/collective_checks.h"
#include "comm/launcher.h"
#include "comm/staged_communicator.h"
#include "comm/temporary_folder.h"
#include "core/error.h"
#include "gpu/gpu.h"

namespace vitrine::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr int64_t kCount = 4 << 20;

std::vector<int> everyone(const World& world) {
  std::vector<int> all(static_cast<size_t>(world.size()));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// "missing R after S s: text" and 3 for a CommError.
template <typename Call>
int report(Call&& call) {
  const auto start = steady_clock::now();
  try {
    call();
  } catch (const CommError& error) {
    const double seconds = std::chrono::duration<double>(steady_clock::now() - start).count();
    std::printf("missing %d after %.1f s: %s\n", error.missing_rank(), seconds, error.what());
    return 3;
  }
  std::printf("no error\n");
  return 0;
}

int collectives(World& world, Device& device) {
  const Sums sums = world.size() <= 2 ? Sums::kRankOrder : Sums::kAnyOrder;
  const auto all = world.group(everyone(world), "all");
  StagedCommunicator staged(*all, world, device);
  check_collectives(staged, sums);
  std::vector<int> mine;  // even and odd ranks apart
  for (int r = world.rank() % 2; r < world.size(); r += 2) mine.push_back(r);
  const auto half = world.group(mine, "half");
  StagedCommunicator staged_half(*half, world, device);
  check_collectives(staged_half, sums);
  check_collectives(*world.host_group(everyone(world), "host"));
  std::printf("all collectives are right\n");
  return 0;
}

// Two lanes of the same ranks at once, issued in another order on each rank.
int lanes(World& world, Device& device) {
  const auto gather = world.group(everyone(world), "gather");
  const auto reduce = world.group(everyone(world), "reduce");
  const auto n = static_cast<size_t>(world.size());
  auto* a = static_cast<std::byte*>(device.allocate(kCount * n));
  auto* b = static_cast<float*>(device.allocate(kCount * 4));
  const auto rank = static_cast<size_t>(world.rank());
  const std::vector<std::byte> piece(kCount, static_cast<std::byte>(rank + 1));
  const std::vector<float> terms(kCount, static_cast<float>(rank + 1));
  device.zero(a, kCount * n);
  device.upload(a + kCount * rank, piece.data(), kCount);
  device.synchronize();
  for (int i = 0; i < 50; ++i) {
    const auto issue_gather = [&] {
      device.enter_lane(1);
      gather->all_gather({a + kCount * static_cast<size_t>(world.rank()), kCount}, {a, kCount * n});
    };
    if (world.rank() % 2 == 0) issue_gather();
    device.enter_lane(2);
    device.upload(b, terms.data(), kCount * 4);
    reduce->all_reduce(b, kCount, DType::kF32);
    if (world.rank() % 2 != 0) issue_gather();
  }
  device.synchronize();
  world.check();
  std::vector<std::byte> gathered(kCount * n);
  std::vector<float> sums(kCount);
  device.download(gathered.data(), a, gathered.size());
  device.download(sums.data(), b, kCount * 4);
  for (size_t i = 0; i < gathered.size(); ++i) {
    if (gathered[i] != static_cast<std::byte>(i / kCount + 1)) {
      std::printf("byte %zu of the gather is wrong\n", i);
      return 1;
    }
  }
  const auto expected = static_cast<float>(n * (n + 1) / 2);
  for (size_t i = 0; i < sums.size(); ++i) {
    if (sums[i] != expected) {
      std::printf("element %zu of the sum is %g, not %g\n", i, sums[i], expected);
      return 1;
    }
  }
  std::printf("both lanes are done\n");
  return 0;
}

// One rank does not come to the collective in time: it sleeps, dies or aborts.
int missing(World& world, Device& device, const std::string& how) {
  const auto group = world.group(everyone(world), "reduce");
  auto* data = static_cast<float*>(device.allocate(kCount * 4));
  device.zero(data, kCount * 4);
  const auto reduce = [&](int64_t step) {
    world.progress(step, "reduce of body.2");
    group->set_context(step, "reduce of body.2");
    group->all_reduce(data, kCount, DType::kF32);
    device.synchronize();
    world.check();
  };
  reduce(3);
  std::this_thread::sleep_for(milliseconds(600));  // lets every rank report its place
  if (world.rank() == 1) {
    if (how == "killed") kill(getpid(), SIGKILL);
    if (how == "aborted") {
      world.abort("loss is not a number");
      return report([&] { world.check(); });
    }
    std::this_thread::sleep_for(milliseconds(12000));
  }
  const int code = report([&] { reduce(4); });
  const int again = report([&] { group->barrier(); });
  if (code == 3) world.abort("a rank was missing");
  return again == 3 ? code : 1;
}

int run_rank(const std::string& body) {
  const char* timeout = std::getenv("VITRINE_TEST_TIMEOUT_MS");
  try {
    const RankEnvironment environment = rank_environment();
    const auto world = make_nccl_world(
        environment, environment.local_rank, milliseconds(timeout ? std::atoi(timeout) : 60000));
    const auto device = make_gpu_device(environment.local_rank);
    device->enter_lane(0);
    if (body == "collectives") return collectives(*world, *device);
    if (body == "lanes") return lanes(*world, *device);
    return missing(*world, *device, body);
  } catch (const std::exception& error) {
    std::printf("error: %s\n", error.what());
    return 1;
  }
}

struct Ran {
  LaunchResult result;
  std::vector<std::string> logs;
};

Ran run_ranks(int ranks, const std::string& body, int timeout_ms = 60000) {
  const TemporaryFolder folder;
  LaunchOptions options;
  options.ranks = ranks;
  options.arguments = {"--rank-body", body};
  options.environment = {{"VITRINE_TEST_TIMEOUT_MS", std::to_string(timeout_ms)}};
  options.log_folder = folder.path();
  options.grace = std::chrono::seconds(20);
  options.out_fd = options.error_fd = -1;
  Ran ran{launch_ranks(options), {}};
  for (int r = 0; r < ranks; ++r)
    ran.logs.push_back(read_file(folder.path() / ("rank" + std::to_string(r) + ".log")));
  return ran;
}

int gpus() { return why_no_gpu().empty() ? static_cast<int>(gpu_devices().size()) : 0; }

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(NcclWorld, CollectivesEqualPlainArithmeticOnOneToAllGpus) {
  if (gpus() == 0) GTEST_SKIP() << why_no_gpu();
  for (int ranks = 1; ranks <= gpus(); ++ranks) {
    const Ran ran = run_ranks(ranks, "collectives");
    EXPECT_TRUE(ran.result.ok()) << ran.result.summary << "\n" << ran.result.log_tail;
    for (const std::string& log : ran.logs)
      EXPECT_TRUE(contains(log, "all collectives are right")) << log;
  }
}

TEST(NcclWorld, TwoLanesRunAtOnceWhateverTheOrderOfTheirCalls) {
  if (gpus() < 2) GTEST_SKIP() << "needs two GPUs";
  const Ran ran = run_ranks(2, "lanes");
  EXPECT_TRUE(ran.result.ok()) << ran.result.summary << "\n" << ran.result.log_tail;
}

class MissingRank : public ::testing::TestWithParam<const char*> {};

TEST_P(MissingRank, IsNamedByTheOtherInThisAndEveryLaterCall) {
  if (gpus() < 2) GTEST_SKIP() << "needs two GPUs";
  const std::string how = GetParam();
  const Ran ran = run_ranks(2, how, how == "late" ? 5000 : 30000);
  EXPECT_FALSE(ran.result.ok());
  const std::string& log = ran.logs[0];
  EXPECT_TRUE(contains(log, "missing 1 after")) << log;
  if (how == "late") {
    EXPECT_TRUE(contains(log, "all_reduce (reduce of body.2, step 4, group 'reduce')")) << log;
    EXPECT_TRUE(contains(log, "rank 1 has not entered reduce of body.2 in step 4")) << log;
  }
  if (how == "killed") {
    EXPECT_TRUE(contains(log, "rank 1 is gone")) << log;
  }
  if (how == "aborted") {
    EXPECT_TRUE(contains(log, "rank 1 aborted: loss is not a number")) << log;
  }
  EXPECT_TRUE(contains(log, "barrier (")) << log;
}

INSTANTIATE_TEST_SUITE_P(Nccl, MissingRank, ::testing::Values("late", "killed", "aborted"));

TEST(NcclWorld, SaysWhatIsMissingWithoutAGpu) {
  if (gpus() > 0) GTEST_SKIP() << "this machine has a GPU: what is tested is a machine without";
  EXPECT_THROW(make_nccl_world({}, 0, milliseconds(1000)), DeviceError);
}

TEST(NcclWorld, RefusesAGpuThatIsNotThere) {
  if (gpus() == 0) GTEST_SKIP() << why_no_gpu();
  EXPECT_THROW(make_nccl_world({}, gpus(), milliseconds(1000)), DeviceError);
}

}  // namespace
}  // namespace vitrine::testing

int main(int argc, char** argv) {
  if (argc == 3 && std::string(argv[1]) == "--rank-body") {
    const int code = vitrine::testing::run_rank(argv[2]);
    std::fflush(stdout);
    return code;
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

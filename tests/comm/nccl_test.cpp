// NCCL's collectives on one to all GPUs of this machine (two ranks share one where there is one),
// and what the ranks say of one that is late, gone or has aborted.
#include "comm/nccl/nccl.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
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
#include "core/dtype.h"
#include "core/error.h"
#include "gpu/device_kernels.h"
#include "gpu/gpu.h"
#include "gpu/runtime.h"

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

// Bytes of device memory filled from the host.
class Array {
 public:
  Array(Device& device, size_t bytes)
      : device_(device), bytes_(bytes), data_(static_cast<std::byte*>(device.allocate(bytes))) {}
  std::byte* data() const { return data_; }
  std::span<std::byte> span() const { return {data_, bytes_}; }
  void set(const std::vector<float>& values, DType dtype) const {
    std::vector<std::byte> raw(values.size() * dtype_bytes(dtype));
    convert(dtype, raw.data(), DType::kF32, values.data(), static_cast<int64_t>(values.size()));
    device_.upload(data_, raw.data(), raw.size());
  }
  std::vector<float> get(size_t count, DType dtype) const {
    std::vector<std::byte> raw(count * dtype_bytes(dtype));
    std::vector<float> values(count);
    device_.download(raw.data(), data_, raw.size());
    convert(DType::kF32, values.data(), dtype, raw.data(), static_cast<int64_t>(count));
    return values;
  }

 private:
  Device& device_;
  size_t bytes_;
  std::byte* data_;
};

// Element i of rank r's terms: bf16 and f16 hold it, but not every sum of two.
float term(int rank, size_t i) {
  return static_cast<float>((static_cast<int>(i % 251) - 125) * (rank + 1)) / 64.0f +
         (rank == 1 ? 100.0f : 0.0f);
}
float rounded(DType dtype, float value) {
  std::array<std::byte, 4> raw{};
  convert(dtype, raw.data(), DType::kF32, &value, 1);
  convert(DType::kF32, &value, dtype, raw.data(), 1);
  return value;
}

// Adds as the communicator would, and notes that pieces follow each other.
class Noting final : public TermAdder {
 public:
  void add(void* out,
           std::span<const void* const> terms,
           int64_t first,
           int64_t count,
           DType dtype) override {
    gpu::Terms some;
    for (const void* const term : terms) some.of[some.count++] = term;
    gpu::sum_arrays(dtype, out, some, count);
    in_order = in_order && first == seen && first % 64 == 0;
    seen += count;
  }
  int64_t seen = 0;
  bool in_order = true;
};

// Gathers and sums of memory that peers reach themselves, in uneven pieces and several rounds.
int copies(World& world, Device& device) {
  const auto group = world.group(everyone(world), "gather");
  const auto sums = world.group(everyone(world), "reduce");
  const int ranks = world.size(), own = world.rank();
  const size_t n = static_cast<size_t>(ranks);
  const auto rank = static_cast<size_t>(own);
  // Rank r holds 1000 + 8 r elements of the first piece; of the second nothing but rank 0 does.
  std::vector<int64_t> bytes, lonely(n, 0);
  for (size_t r = 0; r < n; ++r) bytes.push_back(static_cast<int64_t>(4 * (1000 + 8 * r)));
  lonely[0] = 4096;
  const Array first(device, static_cast<size_t>(bytes[rank])), all(device, 4 * 1100 * n);
  const Array second(device, 4096), one(device, 4096);
  const Array window(device, sums->window_bytes(300000));
  const std::vector<std::span<const std::byte>> pieces = {
      first.span(), second.span().first(static_cast<size_t>(lonely[rank]))};
  if (!group->share(pieces, {})) {
    std::printf("nothing is shared\n");
    return 0;
  }
  if (window.span().empty() || !sums->share({}, window.span())) return 1;
  for (int round = 0; round < 20; ++round) {
    std::vector<float> mine(static_cast<size_t>(bytes[rank]) / 4);
    for (size_t i = 0; i < mine.size(); ++i) mine[i] = term(own, i) + static_cast<float>(round);
    first.set(mine, DType::kF32);
    size_t total = 0;
    for (const int64_t b : bytes) total += static_cast<size_t>(b);
    group->gather_shared(0, all.span().first(total), bytes);
    const std::vector<float> got = all.get(total / 4, DType::kF32);
    size_t at = 0;
    for (size_t r = 0; r < n; ++r) {
      for (size_t i = 0; i < static_cast<size_t>(bytes[r]) / 4; ++i, ++at) {
        if (got[at] == term(static_cast<int>(r), i) + static_cast<float>(round)) continue;
        std::printf("round %d, rank %zu's element %zu is %g\n", round, r, i, got[at]);
        return 1;
      }
    }
    if (own == 0) second.set(std::vector<float>(1024, static_cast<float>(round)), DType::kF32);
    group->gather_shared(1, one.span(), lonely);
    if (one.get(1024, DType::kF32)[1023] != static_cast<float>(round)) return 1;
  }
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    // The first fits a round, the last takes many: the window is of 300 000 bytes in all.
    for (const size_t most : {size_t{8}, size_t{1000}, size_t{1} << 20}) {
      std::vector<int64_t> counts;
      for (size_t r = 0; r < n; ++r)
        counts.push_back(static_cast<int64_t>(most - (r % 2) * (most / 3)));
      const auto total =
          static_cast<size_t>(std::accumulate(counts.begin(), counts.end(), int64_t{0}));
      std::vector<float> terms(total);
      for (size_t i = 0; i < total; ++i) terms[i] = term(own, i);
      const Array in(device, total * 4), out(device, most * 4);
      in.set(terms, dtype);
      Noting noting;
      const bool through = most == 1000 || sums->sum_through(&noting, dtype);
      sums->reduce_scatter_v(in.data(), counts, out.data(), dtype);
      sums->sum_through(nullptr, dtype);
      const auto mine = static_cast<size_t>(counts[rank]);
      if (!through || !noting.in_order ||
          noting.seen != (most == 1000 ? 0 : static_cast<int64_t>(mine))) {
        std::printf("%s: the adder saw %ld of %zu\n", dtype_name(dtype), noting.seen, mine);
        return 1;
      }
      const std::vector<float> got = out.get(mine, dtype);
      const auto begin =
          static_cast<size_t>(std::accumulate(counts.begin(), counts.begin() + own, int64_t{0}));
      for (size_t i = 0; i < mine; ++i) {
        float sum = 0;
        for (int r = 0; r < ranks; ++r) sum += rounded(dtype, term(r, begin + i));
        if (got[i] == rounded(dtype, sum)) continue;
        std::printf(
            "%s, element %zu of %zu is %g, not %g\n", dtype_name(dtype), i, mine, got[i], sum);
        return 1;
      }
    }
  }
  world.check();
  std::printf("what is shared is right\n");
  return 0;
}

// One rank does not come to the collective in time: it sleeps, dies or aborts.
int missing(World& world, Device& device, const std::string& how, bool shared) {
  const auto group = world.group(everyone(world), "reduce");
  auto* data = static_cast<float*>(device.allocate(kCount * 4));
  device.zero(data, kCount * 4);
  const Array window(device, shared ? group->window_bytes(kCount * 4) : 0);
  if (shared && !group->share({}, window.span())) {
    std::printf("nothing is shared\n");
    return 4;
  }
  const auto reduce = [&](int64_t step) {
    world.progress(step, "reduce of body.2");
    group->set_context(step, "reduce of body.2");
    if (shared) {
      const int64_t piece = kCount / world.size();
      group->reduce_scatter(data, data + piece * world.rank(), piece, DType::kF32);
    } else {
      group->all_reduce(data, kCount, DType::kF32);
    }
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
    const auto world =
        make_nccl_world(environment, milliseconds(timeout ? std::atoi(timeout) : 60000));
    const auto device = make_gpu_device(environment.gpu());
    device->enter_lane(0);
    if (body == "collectives") return collectives(*world, *device);
    if (body == "lanes") return lanes(*world, *device);
    if (body == "copies") return copies(*world, *device);
    const bool shared = body.starts_with("shared ");
    return missing(*world, *device, shared ? body.substr(7) : body, shared);
  } catch (const std::exception& error) {
    std::printf("error: %s\n", error.what());
    return 1;
  }
}

int gpus() { return why_no_gpu().empty() ? static_cast<int>(gpu_devices().size()) : 0; }

// Two ranks also where there is one GPU.
int most_ranks() { return std::max(2, gpus()); }

struct Ran {
  LaunchResult result;
  std::vector<std::string> logs;
};

Ran run_ranks(int ranks, const std::string& body, int timeout_ms = 60000) {
  const TemporaryFolder folder;
  LaunchOptions options;
  options.ranks = ranks;
  options.arguments = {"--rank-body", body};
  options.environment = {{"VITRINE_TEST_TIMEOUT_MS", std::to_string(timeout_ms)},
                         {"VITRINE_RANKS_PER_GPU", ranks > gpus() ? "2" : "1"}};
  options.log_folder = folder.path();
  options.grace = std::chrono::seconds(20);
  options.out_fd = options.error_fd = -1;
  Ran ran{launch_ranks(options), {}};
  for (int r = 0; r < ranks; ++r)
    ran.logs.push_back(read_file(folder.path() / ("rank" + std::to_string(r) + ".log")));
  return ran;
}

// "" or why memory is not shared on this machine, whatever the code does.
std::string why_not_shared() {
  const char* choice = std::getenv("VITRINE_PEER_COPIES");
  if (choice && std::string(choice) == "0") return "VITRINE_PEER_COPIES=0 turns sharing off";
  for (int a = 0; a < gpus(); ++a) {
    for (int b = 0; b < gpus(); ++b) {
      int reaches = 0;
      if (a == b) continue;
      VITRINE_GPU_CHECK(cudaDeviceCanAccessPeer(&reaches, a, b));
      if (!reaches)
        return "GPU " + std::to_string(a) + " cannot reach the memory of GPU " + std::to_string(b);
    }
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(NcclWorld, CollectivesEqualPlainArithmeticOnOneToAllGpus) {
  if (gpus() == 0) GTEST_SKIP() << why_no_gpu();
  for (int ranks = 1; ranks <= most_ranks(); ++ranks) {
    const Ran ran = run_ranks(ranks, "collectives");
    EXPECT_TRUE(ran.result.ok()) << ran.result.summary << "\n" << ran.result.log_tail;
    for (const std::string& log : ran.logs)
      EXPECT_TRUE(contains(log, "all collectives are right")) << log;
  }
}

TEST(NcclWorld, TwoLanesRunAtOnceWhateverTheOrderOfTheirCalls) {
  if (gpus() == 0) GTEST_SKIP() << why_no_gpu();
  const Ran ran = run_ranks(2, "lanes");
  EXPECT_TRUE(ran.result.ok()) << ran.result.summary << "\n" << ran.result.log_tail;
}

TEST(NcclWorld, SharedMemoryIsGatheredAndSummed) {
  if (gpus() == 0) GTEST_SKIP() << why_no_gpu();
  if (const std::string why = why_not_shared(); !why.empty()) GTEST_SKIP() << why;
  for (int ranks = 2; ranks <= most_ranks(); ++ranks) {
    const Ran ran = run_ranks(ranks, "copies");
    EXPECT_TRUE(ran.result.ok()) << ran.result.summary << "\n" << ran.result.log_tail;
    for (const std::string& log : ran.logs)
      EXPECT_TRUE(contains(log, "what is shared is right")) << log;
  }
}

class MissingRank : public ::testing::TestWithParam<const char*> {};

TEST_P(MissingRank, IsNamedByTheOtherInThisAndEveryLaterCall) {
  if (gpus() == 0) GTEST_SKIP() << why_no_gpu();
  const std::string how = GetParam();
  const bool shared = how.starts_with("shared ");
  if (const std::string why = shared ? why_not_shared() : ""; !why.empty()) GTEST_SKIP() << why;
  const Ran ran = run_ranks(2, how, how.ends_with("late") ? 5000 : 30000);
  EXPECT_FALSE(ran.result.ok());
  const std::string& log = ran.logs[0];
  EXPECT_TRUE(contains(log, "missing 1 after")) << log;
  if (how.ends_with("late")) {
    const std::string call = shared ? "reduce_scatter_v" : "all_reduce";
    EXPECT_TRUE(contains(log, call + " (reduce of body.2, step 4, group 'reduce')")) << log;
    EXPECT_TRUE(contains(log, "rank 1 has not entered reduce of body.2 in step 4")) << log;
  }
  if (how.ends_with("killed")) {
    EXPECT_TRUE(contains(log, "rank 1 is gone")) << log;
  }
  if (how.ends_with("aborted")) {
    EXPECT_TRUE(contains(log, "rank 1 aborted: loss is not a number")) << log;
  }
  EXPECT_TRUE(contains(log, "barrier (")) << log;
}

INSTANTIATE_TEST_SUITE_P(Nccl,
                         MissingRank,
                         ::testing::Values("late",
                                           "killed",
                                           "aborted",
                                           "shared late",
                                           "shared killed",
                                           "shared aborted"));

TEST(NcclWorld, SaysWhatIsMissingWithoutAGpu) {
  if (gpus() > 0) GTEST_SKIP() << "this machine has a GPU: what is tested is a machine without";
  EXPECT_THROW(make_nccl_world({}, milliseconds(1000)), DeviceError);
}

TEST(NcclWorld, RefusesAGpuThatIsNotThere) {
  if (gpus() == 0) GTEST_SKIP() << why_no_gpu();
  RankEnvironment environment;
  environment.size = environment.local_size = gpus() + 1;
  environment.rank = environment.local_rank = gpus();
  EXPECT_THROW(make_nccl_world(environment, milliseconds(1000)), DeviceError);
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

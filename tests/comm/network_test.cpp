// Two hosts, played by network namespaces; and ranks that torchrun starts.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <string>
#include <thread>

#include "comm/temporary_folder.h"

namespace vitrine {
namespace {

struct Outcome {
  int code;
  std::string output;
};

Outcome run_command(const std::string& command) {
  Outcome outcome{-1, ""};
  FILE* pipe = popen(("( " + command + " ) 2>&1").c_str(), "r");
  if (pipe == nullptr) return outcome;
  std::array<char, 4096> chunk;
  while (const size_t n = fread(chunk.data(), 1, chunk.size(), pipe)) {
    outcome.output.append(chunk.data(), n);
  }
  const int status = pclose(pipe);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

std::string this_program() { return std::filesystem::read_symlink("/proc/self/exe").string(); }

// Two namespaces joined by a cable; removed at the end.
class TwoHosts {
 public:
  TwoHosts() {
    const std::string a = host(0), b = host(1);
    const std::string cable = "vt" + tag_;
    made_ = run_command("ip netns add " + a + " && ip netns add " + b + " && ip link add " + cable +
                        "a netns " + a + " type veth peer name " + cable + "b netns " + b +
                        " && ip -n " + a + " addr add 10.213.7.1/24 dev " + cable + "a && ip -n " +
                        b + " addr add 10.213.7.2/24 dev " + cable + "b && ip -n " + a +
                        " link set " + cable + "a up && ip -n " + b + " link set " + cable +
                        "b up && ip -n " + a + " link set lo up && ip -n " + b + " link set lo up");
  }
  ~TwoHosts() { run_command("ip netns del " + host(0) + "; ip netns del " + host(1)); }
  TwoHosts(const TwoHosts&) = delete;
  TwoHosts& operator=(const TwoHosts&) = delete;

  bool made() const { return made_.code == 0; }
  const std::string& why_not() const { return made_.output; }
  std::string host(int i) const { return "vitrine-" + tag_ + "-" + std::to_string(i); }
  std::string interface(int i) const { return "vt" + tag_ + (i == 0 ? "a" : "b"); }
  Outcome run_rank(int rank, const std::string& variables) const {
    return run_command("ip netns exec " + host(rank) + " env RANK=" + std::to_string(rank) +
                       " WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_PORT=29500 " +
                       variables + " timeout 60 " + this_program() + " --rank-body collectives");
  }

 private:
  const std::string tag_ = std::to_string(getpid());
  Outcome made_;
};

TEST(Network, CollectivesWorkBetweenTwoHosts) {
  const TwoHosts hosts;
  if (!hosts.made()) GTEST_SKIP() << "network namespaces are not permitted: " << hosts.why_not();
  for (const bool by_name : {false, true}) {
    std::array<Outcome, 2> outcomes;
    const auto run = [&](int r) {
      std::string variables = "MASTER_ADDR=10.213.7.1";
      if (by_name) variables += " VITRINE_SOCKET_IFNAME=" + hosts.interface(r);
      outcomes[static_cast<size_t>(r)] = hosts.run_rank(r, variables);
    };
    std::thread other([&] { run(1); });
    run(0);
    other.join();
    for (const Outcome& outcome : outcomes) {
      EXPECT_EQ(outcome.code, 0);
      EXPECT_EQ(outcome.output, "all collectives are right\n");
    }
  }
}

TEST(Network, RefusesAnAddressThatOtherHostsCannotReach) {
  const TwoHosts hosts;
  if (!hosts.made()) GTEST_SKIP() << "network namespaces are not permitted: " << hosts.why_not();
  const Outcome loopback = hosts.run_rank(0, "MASTER_ADDR=127.0.0.1");
  EXPECT_NE(loopback.output.find("which other hosts cannot reach"), std::string::npos)
      << loopback.output;
  const Outcome unknown = hosts.run_rank(0, "MASTER_ADDR=10.213.7.1 VITRINE_SOCKET_IFNAME=nosuch0");
  EXPECT_NE(unknown.output.find("cannot use the network interface 'nosuch0'"), std::string::npos)
      << unknown.output;
}

TEST(Torchrun, StartsRanksThatFindEachOther) {
  // In a folder of its own, so that no file here shadows a module.
  const testing::TemporaryFolder folder;
  const std::string python = "cd " + folder.path().string() + " && /usr/bin/python3";
  if (run_command(python + " -c 'import torch.distributed.run'").code != 0) {
    GTEST_SKIP() << "torch.distributed.run is not installed";
  }
  // Without -r and -t this version fails on Python 3.11.
  const Outcome outcome = run_command(
      "unset RANK WORLD_SIZE; " + python +
      " -m torch.distributed.run --standalone --nproc_per_node=3 -r 0:1 -t 0:1 --no_python " +
      this_program() + " --rank-body collectives");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  size_t times = 0;
  for (size_t at = 0;
       (at = outcome.output.find("all collectives are right", at)) != std::string::npos;
       ++at) {
    ++times;
  }
  EXPECT_EQ(times, 3u) << outcome.output;
}

}  // namespace
}  // namespace vitrine

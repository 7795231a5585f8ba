// NCCL's logs: dialects by hand, and those of real jobs against counts made with grep.
#include "readers/nccl_log.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.h"
#include "support/shared_data.h"
#include "support/temporary_folder.h"
#include "support/text_files.h"

namespace vitrine {
namespace {

NcclFacts facts_of(const std::string& text) {
  TemporaryFolder folder;
  return read_nccl_log(write_file(folder / "nccl.log", text));
}

int64_t count(const NcclFacts& facts, const std::string& transport) {
  return std::count_if(facts.channels.begin(), facts.channels.end(), [&](const auto& channel) {
    return channel.transport == transport;
  });
}

TEST(NcclLog, ALogOfTodayGivesItsFacts) {
  const NcclFacts f = facts_of(
      "step 1 loss 3.2\n"
      "a1:10:10 [0] NCCL INFO NCCL version 2.27.5+cuda12.9\n"
      "a1:10:10 [0] NCCL INFO NCCL_IB_DISABLE set by environment to 1.\n"
      "a1:10:10 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to eth0\n"
      "a1:10:10 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB "
      "eth0:10.0.0.1<0>\n"
      "a1:10:10 [0] NCCL INFO Using network IB\n"
      "a1:10:10 [0] NCCL INFO ncclCommInitRankConfig comm 0xaa rank 0 nranks 2 cudaDev 0 nvmlDev 0 "
      "busId 60 commId 0x7963b7909616c007 - Init START\n"
      "a2:20:20 [0] NCCL INFO ncclCommInitRankConfig comm 0xbb rank 1 nranks 2 cudaDev 0 nvmlDev 0 "
      "busId 70 commId 0x7963b7909616c007 - Init START\n"
      "a1:10:10 [0] NCCL INFO comm 0xaa rank 0 nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0\n"
      "a1:10:10 [0] NCCL INFO 4 coll channels, 0 collnet channels, 0 nvls channels, 4 p2p "
      "channels\n"
      "a1:10:15 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA\n"
      "a2:20:25 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [receive] via NET/IB/0/GDRDMA\n"
      "a2:20:20 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/IB/1\n"
      "a1:10:10 [0] NCCL INFO AllReduce: 8388608 Bytes -> Algo RING proto LL128 "
      "channel{Lo..Hi}={0..3}\n"
      "a1:10:10 [0] NCCL INFO AllReduce: 8388608 Bytes -> Algo 1 proto 1 time 12.5\n"
      "[2024-05-01 10:00:00] a1:10:16 [0] transport/net.cc:312 NCCL WARN Call to ibv_modify_qp "
      "failed\n"
      "a1:10:16 [0] misc/socket.cc:5 NCCL WARN Call to ibv_modify_qp failed\n");
  EXPECT_EQ(f.version, "2.27.5+cuda12.9");
  EXPECT_EQ(f.hosts, (std::vector<std::string>{"a1", "a2"}));
  EXPECT_EQ(f.rank_host, (std::map<int32_t, std::string>{{0, "a1"}, {1, "a2"}}));
  EXPECT_EQ(f.network, "IB");
  EXPECT_EQ(f.network_devices, (std::vector<std::string>{"mlx5_0:1/RoCE", "mlx5_1:1/RoCE"}));
  EXPECT_EQ(f.environment,
            (std::map<std::string, std::string>{{"NCCL_IB_DISABLE", "1"},
                                                {"NCCL_SOCKET_IFNAME", "eth0"}}));
  ASSERT_EQ(f.communicators.size(), 2u);
  EXPECT_EQ(f.communicators[0].id, "0x7963b7909616c007");
  EXPECT_EQ(f.communicators[0].nodes, 2);
  EXPECT_EQ(f.communicators[0].channels, 4);
  EXPECT_EQ(f.communicators[1].bus_id, "70");
  // The first connection is told by both ends, the second by its receiver alone.
  ASSERT_EQ(f.channels.size(), 2u);
  EXPECT_EQ(f.channels[0].transport, "NET/IB/0");
  EXPECT_TRUE(f.channels[0].direct_rdma);
  EXPECT_EQ(f.channels[0].communicator, 0);
  EXPECT_EQ(f.channels[1].from, 1);
  EXPECT_FALSE(f.channels[1].direct_rdma);
  // The same choice in the words of two versions.
  EXPECT_EQ(f.tuning,
            std::vector<std::string>{"AllReduce: 8388608 Bytes -> Algo Ring proto LL128"});
  EXPECT_EQ(f.problems, std::vector<std::string>{"Call to ibv_modify_qp failed (2 times)"});
  EXPECT_TRUE(f.warnings.empty());
}

TEST(NcclLog, TheCardIsKnownWithinTheProcessAndOnTheHost) {
  const NcclFacts f = facts_of(
      "a1:1:1 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 2 cudaDev 0 nvmlDev 5 busId 60 "
      "commId 0x7 - Init START\n"
      "a1:2:2 [0] NCCL INFO ncclCommInitRank comm 0x2 rank 1 nranks 2 cudaDev 0 busId 70 commId "
      "0x7 - Init START\n");
  ASSERT_EQ(f.communicators.size(), 2u);
  EXPECT_EQ(f.communicators[0].cuda_device, 0);
  EXPECT_EQ(f.communicators[0].nvml_device, 5);
  EXPECT_EQ(f.communicators[1].nvml_device, -1);
}

TEST(NcclLog, LinesOfRanksCutIntoEachOtherAreUsedWhereWhole) {
  const NcclFacts f = facts_of(
      "NCCL version 2.7.8+cuda10.2\n"
      "n1:1:11 [0] NCCL INFO Channel 00 : 0[1a000] -> 1[1c000] via P2P/IPC\n"
      "n2:2:22 [0] NCCL INFO Channel 01 : 0[1a000] -> 1[1c0n1:1:11 [0] NCCL INFO Channel 01 : "
      "0[1a000] -> 1[1c000] via P2P/IPC\n"
      "00] via P2P/IPC\n"
      "n1:1:11 [0] NCCL INFO comm 0x1 rank 0 nranks 2 cudaDev 0 busId 1a000 - Init COMPLETE\n");
  EXPECT_EQ(f.version, "2.7.8+cuda10.2");
  EXPECT_EQ(f.hosts, (std::vector<std::string>{"n1", "n2"}));
  ASSERT_EQ(f.channels.size(), 2u);
  EXPECT_EQ(f.channels[1].number, 1);
  EXPECT_EQ(f.channels[1].communicator, 0);  // named only after its channels
  ASSERT_EQ(f.warnings.size(), 3u);
  EXPECT_NE(f.warnings[0].find("1 of 2 ranks"), std::string::npos);
  EXPECT_NE(f.warnings[1].find("1 messages begin amid"), std::string::npos);
  EXPECT_NE(f.warnings[2].find("1 messages of channels or communicators are cut"),
            std::string::npos);
}

TEST(NcclLog, LaunchersPrefixesDoNotHideTheHost) {
  const NcclFacts f = facts_of(
      "[default0]:gpu-7.rack:5:5 [0] NCCL INFO Using network Socket\n"
      "3: gpu-8.rack:6:6 [1] NCCL INFO Using network IB\n");
  EXPECT_EQ(f.hosts, (std::vector<std::string>{"gpu-7.rack", "gpu-8.rack"}));
  EXPECT_EQ(f.network, "Socket");
  ASSERT_EQ(f.warnings.size(), 1u);
  EXPECT_NE(f.warnings[0].find("different networks: IB, Socket"), std::string::npos);
}

TEST(NcclLog, OtherTextIsRefusedWithWhatToSet) {
  try {
    facts_of("epoch 1\nNCCL is a library\n");
    FAIL() << "read";
  } catch (const IoError& error) {
    EXPECT_NE(std::string(error.what()).find("NCCL_DEBUG=INFO"), std::string::npos);
  }
  TemporaryFolder folder;
  EXPECT_THROW(read_nccl_log(folder / "absent"), IoError);
  EXPECT_THROW(read_nccl_log(write_file(folder / "empty", "")), IoError);
  EXPECT_THROW(read_nccl_log(folder.path()), IoError);
}

TEST(NcclLog, ACutGzipIsReadAsFarAsItGoes) {
  TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 20000; ++i) {
    text += "n1:1:1 [0] NCCL INFO number " + std::to_string(i * 7919 % 10007) + "\n";
  }
  const std::string whole = file_content(write_gzip(folder / "log.gz", text));
  const NcclFacts f =
      read_nccl_log(write_file(folder / "cut.gz", whole.substr(0, whole.size() / 2)));
  EXPECT_GT(f.lines, 1000);
  ASSERT_EQ(f.warnings.size(), 1u);
  EXPECT_NE(f.warnings[0].find("cut short"), std::string::npos);
}

TEST(NcclLog, ZeroBytesArePassedOverAndCounted) {
  const std::string line = "n1:1:1 [0] NCCL INFO NCCL version 2.27.5+cuda12.9\n";
  std::string inside = line;
  inside.insert(10, 1, '\0');
  const NcclFacts f = facts_of(std::string(5000, '\0') + inside + line);
  EXPECT_EQ(f.version, "2.27.5+cuda12.9");
  EXPECT_EQ(f.lines, 2);
  ASSERT_EQ(f.warnings.size(), 1u);
  EXPECT_NE(f.warnings[0].find("1 lines hold zero bytes"), std::string::npos) << f.warnings[0];
}

TEST(NcclLog, AWrongChecksumIsSaidAndTheTextRead) {
  TemporaryFolder folder;
  std::string whole = file_content(
      write_gzip(folder / "log.gz", "n1:1:1 [0] NCCL INFO NCCL version 2.27.5+cuda12.9\n"));
  whole[whole.size() - 8] = static_cast<char>(whole[whole.size() - 8] ^ 1);
  const NcclFacts f = read_nccl_log(write_file(folder / "log.gz", whole));
  EXPECT_EQ(f.version, "2.27.5+cuda12.9");
  ASSERT_EQ(f.warnings.size(), 1u);
  EXPECT_NE(f.warnings[0].find("damaged"), std::string::npos) << f.warnings[0];
}

TEST(NcclReal, PeerToPeerOffIsSeenAsSharedMemory) {
  const std::string data = shared_data();
  if (data.empty()) GTEST_SKIP() << "no reference logs: set VITRINE_SHARED_DATA";
  const NcclFacts nvlink = read_nccl_log(data + "/logs/nccl_h200_x2_nvlink.log");
  EXPECT_EQ(nvlink.version, "2.28.9+cuda13.0");
  EXPECT_EQ(nvlink.channels.size(), 48u);
  EXPECT_EQ(count(nvlink, "P2P/CUMEM"), 48);
  ASSERT_EQ(nvlink.communicators.size(), 2u);
  EXPECT_EQ(nvlink.communicators[0].channels, 24);
  EXPECT_EQ(nvlink.communicators[0].nodes, 1);
  EXPECT_EQ(nvlink.communicators[0].local_ranks, 2);
  EXPECT_TRUE(nvlink.environment.empty());

  const NcclFacts off = read_nccl_log(data + "/logs/nccl_h200_x2_p2p_disabled.log");
  EXPECT_EQ(off.channels.size(), 8u);
  EXPECT_EQ(count(off, "SHM/direct/direct"), 8);
  EXPECT_EQ(off.environment, (std::map<std::string, std::string>{{"NCCL_P2P_DISABLE", "1"}}));
  EXPECT_EQ(off.network, "Socket");
  EXPECT_EQ(off.network_devices, std::vector<std::string>{"eth0"});
  EXPECT_EQ(off.rank_host, (std::map<int32_t, std::string>{{0, "vm"}, {1, "vm"}}));
  EXPECT_EQ(off.problems.size(), 2u);  // no InfiniBand device, so its plug-in fails
}

TEST(NcclReal, FourNodesOfA100TalkOverInfiniBand) {
  const std::string data = shared_data();
  if (data.empty()) GTEST_SKIP() << "no reference logs: set VITRINE_SHARED_DATA";
  const NcclFacts f = read_nccl_log(data + "/logs/bigscience__all_reduce_bench-a100-n4.txt");
  EXPECT_EQ(f.version, "2.10.3+cuda11.3");
  EXPECT_EQ(f.hosts.size(), 4u);
  EXPECT_EQ(f.rank_host.size(), 32u);
  EXPECT_EQ(f.network, "IB");
  EXPECT_EQ(f.network_devices.size(), 4u);
  EXPECT_EQ(f.communicators.size(), 32u);
  for (const auto& communicator : f.communicators) {
    EXPECT_EQ(communicator.ranks, 32);
    EXPECT_EQ(communicator.nodes, 4);
    EXPECT_EQ(communicator.channels, 2);
  }
  for (const auto& channel : f.channels) {
    const std::string& from = f.rank_host.at(channel.from);
    const bool inside = from == f.rank_host.at(channel.to);
    EXPECT_EQ(channel.transport.substr(0, 3), inside ? "P2P" : "NET");
    EXPECT_GE(channel.communicator, 0);
  }
}

TEST(NcclReal, SixtyFourRanksOfAnOldVersionInATrainingJobsOutput) {
  const std::string data = shared_data();
  if (data.empty()) GTEST_SKIP() << "no reference logs: set VITRINE_SHARED_DATA";
  const NcclFacts f = read_nccl_log(data + "/logs/bigscience__meg_ds_zero_gpt2_perf_n16.out.gz");
  EXPECT_EQ(f.version, "2.7.8+cuda10.2");
  EXPECT_EQ(f.hosts.size(), 16u);
  EXPECT_EQ(f.communicators.size(), 192u);
  EXPECT_EQ(f.rank_host.size(), 64u);
  EXPECT_EQ(f.environment.at("NCCL_DEBUG"), "info");
  int64_t unknown = 0;
  for (const auto& channel : f.channels) unknown += channel.communicator < 0;
  EXPECT_EQ(unknown, 0);
}

}  // namespace
}  // namespace vitrine

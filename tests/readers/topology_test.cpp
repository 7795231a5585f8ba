// Tables of links: hand-made ones cell by cell, and those of many real machines.
#include <gtest/gtest.h>

#include "core/error.h"
#include "readers/topology_text.h"
#include "support/shared_data.h"
#include "support/temporary_folder.h"
#include "support/text_files.h"

namespace vitrine {
namespace {

using Islands = std::vector<std::vector<int32_t>>;

Topology topology_of(const std::string& text) {
  TemporaryFolder folder;
  return read_topology(write_file(folder / "topo.txt", text));
}

TEST(TopologyText, ATabbedTableWithTerminalColoursAndBlankCellsIsReadExactly) {
  const Topology t = topology_of(
      "\t\x1b[4mGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
      "GPU0\t X \tNV18\tPIX\t0-47\t0\t\tN/A\n"
      "GPU1\tNV18\t X \tSYS\t\t1\t\tN/A\n"
      "NIC0\tPIX\tSYS\t X \t\t\t\t\n"
      "\nLegend:\n\n  X    = Self\n  NV#  = Connection\n\nNIC Legend:\n\n  NIC0: mlx5_3\n");
  EXPECT_EQ(t.gpus, (std::vector<std::string>{"GPU0", "GPU1"}));
  EXPECT_EQ(t.nics, std::vector<std::string>{"mlx5_3"});
  EXPECT_EQ(t.links[0][0].kind, LinkKind::kSelf);
  EXPECT_EQ(t.links[0][1].kind, LinkKind::kNvlink);
  EXPECT_EQ(t.links[0][1].nvlinks, 18);
  EXPECT_EQ(t.links[0][2].kind, LinkKind::kSwitch);
  EXPECT_EQ(t.links[1][2].kind, LinkKind::kSystem);
  EXPECT_EQ(t.cpu_affinity, (std::vector<std::string>{"0-47", ""}));
  EXPECT_EQ(t.numa_node, (std::vector<int32_t>{0, 1}));
  EXPECT_TRUE(t.warnings.empty());
}

TEST(TopologyText, OldAndForeignNamesOfLinksAreUnderstood) {
  const Topology old = topology_of("\tGPU0\tGPU1\nGPU0\t X \tSOC\nGPU1\tSOC\t X \n");
  EXPECT_EQ(old.links[0][1].kind, LinkKind::kSystem);
  const Topology rocm = topology_of(
      "=== Weight between two GPUs ===\n       GPU0   GPU1\nGPU0   0      15\nGPU1   15     0\n"
      "=== Link Type between two GPUs ===\n       GPU0   GPU1   GPU2\n"
      "GPU0   0      XGMI   PCIE\nGPU1   XGMI   0      PCIE\nGPU2   PCIE   PCIE   0\n");
  EXPECT_EQ(rocm.nvlink_islands(), (Islands{{0, 1}, {2}}));
  EXPECT_EQ(rocm.links[0][2].kind, LinkKind::kHostBridge);
  ASSERT_EQ(rocm.warnings.size(), 1u);  // PCIE says no distance
  const Topology amd = topology_of(
      "LINK TYPE TABLE:\n             0000:0c:00.0 0000:22:00.0\n"
      "0000:0c:00.0 SELF         XGMI\n0000:22:00.0 XGMI         SELF\n");
  EXPECT_EQ(amd.nvlink_islands(), (Islands{{0, 1}}));
}

TEST(TopologyText, ACutTableIsFilledFromTheOtherRowsAndSaysSo) {
  const Topology t = topology_of("\tGPU0\tGPU1\tGPU2\nGPU0\t X \tNV4\tPHB\nGPU1\tNV4\t X \n");
  EXPECT_EQ(t.links[2][0].kind, LinkKind::kHostBridge);
  EXPECT_EQ(t.links[2][1].kind, LinkKind::kUnknown);
  ASSERT_EQ(t.warnings.size(), 2u);
  EXPECT_NE(t.warnings[0].find("GPU1 is cut after 2 of 3"), std::string::npos);
  EXPECT_NE(t.warnings[1].find("no row of GPU2"), std::string::npos);
}

TEST(TopologyText, ACliqueNeedsEveryPair) {
  const Topology t = topology_of(
      "\tGPU0\tGPU1\tGPU2\nGPU0\t X \tNV1\tNV1\nGPU1\tNV1\t X \tSYS\nGPU2\tNV1\tSYS\t X \n");
  EXPECT_EQ(t.nvlink_islands(), (Islands{{0, 1, 2}}));
  EXPECT_TRUE(t.nvlink_clique({0, 1}));
  EXPECT_FALSE(t.nvlink_clique({0, 1, 2}));
  EXPECT_FALSE(t.nvlink_clique({0, 7}));
}

std::string refusal(const std::string& text) {
  try {
    topology_of(text);
  } catch (const IoError& error) {
    return error.what();
  }
  return "read";
}

TEST(TopologyText, TwoColumnsOfOneNameAreRefusedWithTheirPlace) {
  const std::string error =
      refusal("\tGPU0\tGPU1\tGPU0\nGPU0\t X \tNV4\tNV4\nGPU1\tNV4\t X \tNV4\n");
  EXPECT_NE(error.find("columns 1 and 3"), std::string::npos) << error;
  EXPECT_NE(error.find("\"GPU0\""), std::string::npos) << error;
}

TEST(TopologyText, CellsThatCannotBeAreUnknownAndSaidWithTheirPlace) {
  const auto one = [](const std::string& cell) {
    return topology_of("\tGPU0\tGPU1\tGPU2\nGPU0\t X \t" + cell +
                       "\tPHB\nGPU1\tNV4\t X \tPHB\nGPU2\tPHB\tPHB\t X \n");
  };
  for (const char* cell : {"NV0", "NV65", "NV999", "NV", "NVx"}) {
    const Topology t = one(cell);
    EXPECT_EQ(t.links[0][1].kind, LinkKind::kUnknown) << cell;
    ASSERT_EQ(t.warnings.size(), 1u) << cell;
    EXPECT_NE(t.warnings[0].find(std::string(cell) + "\" in row GPU0, column GPU1"),
              std::string::npos)
        << t.warnings[0];
  }
  const Topology self = one("X");
  EXPECT_EQ(self.links[0][1].kind, LinkKind::kUnknown);
  ASSERT_EQ(self.warnings.size(), 1u);
  EXPECT_NE(self.warnings[0].find("\"X\" in row GPU0, column GPU1"), std::string::npos);
  const Topology sides = one("SYS");
  ASSERT_EQ(sides.warnings.size(), 1u);
  EXPECT_NE(sides.warnings[0].find("GPU1 and GPU0"), std::string::npos) << sides.warnings[0];
  const Topology diagonal = topology_of("\tGPU0\tGPU1\nGPU0\tNV4\tNV4\nGPU1\tNV4\t X \n");
  EXPECT_EQ(diagonal.links[0][0].kind, LinkKind::kSelf);
  ASSERT_EQ(diagonal.warnings.size(), 1u);
  EXPECT_NE(diagonal.warnings[0].find("\"NV4\" in row GPU0, column GPU0"), std::string::npos);
  EXPECT_TRUE(one("NV4").warnings.empty());
}

TEST(TopologyText, OtherTextIsRefusedWithWhatIsExpected) {
  try {
    topology_of("GPU0 is fine\nand so on\n");
    FAIL() << "read";
  } catch (const IoError& error) {
    EXPECT_NE(std::string(error.what()).find("nvidia-smi topo -m"), std::string::npos);
  }
  TemporaryFolder folder;
  EXPECT_THROW(read_topology(folder / "absent"), IoError);
  EXPECT_THROW(read_topology(write_file(folder / "empty", "")), IoError);
}

struct Machine {
  const char* file;
  size_t gpus, nics;
  Islands islands;
  bool clique;  // of the first island
};

// Islands counted by hand in each file.
const Machine kMachines[] = {
    {"01_dgx1_p100_soc_legacy.txt", 8, 4, {{0, 1, 2, 3, 4, 5, 6, 7}}, false},
    {"02_8xV100_sxm2_dgx1_like.txt", 8, 1, {{0, 1, 2, 3, 4, 5, 6, 7}}, false},
    {"03_4xV100_aws_p3_8xlarge.txt", 4, 0, {{0, 1, 2, 3}}, true},
    {"07_8xA100_azure_nd_vm_phb.txt", 8, 8, {{0, 1, 2, 3, 4, 5, 6, 7}}, true},
    {"08_4xA100_pcie_azure_nc96_nvlink_pairs.txt", 4, 0, {{0, 1}, {2, 3}}, true},
    {"10_8xH100_pcie_crossed_nvlink_pairs.txt", 8, 0, {{0, 5}, {1, 2}, {3, 4}, {6, 7}}, true},
    {"12_6xH100_of_8_with_2_nics.txt", 6, 2, {{0, 1, 2, 3, 4, 5}}, true},
    {"14_4xL40S_phb_sys.txt", 4, 0, {{0}, {1}, {2}, {3}}, true},
    {"18_1xgpu_of_node_with_6_nics.txt", 1, 6, {{0}}, true},
    {"22_8x_nv4_pairs_node_sys_2nics.txt", 8, 2, {{0, 1}, {2, 3}, {4, 5}, {6, 7}}, true},
    {"23_4x_mixed_nv4_diag_pairs.txt", 4, 0, {{0, 3}, {1, 2}}, true},
    {"25_8xA100_compact_spacing.txt", 8, 0, {{0, 1, 2, 3, 4, 5, 6, 7}}, true},
    {"29_dgx_a100_11_hcas_cgroup.txt", 8, 11, {{0, 1, 2, 3, 4, 5, 6, 7}}, true},
    {"litgpt__nvlink_partially_connected_output.txt", 4, 0, {{0, 1}, {2, 3}}, true},
};

TEST(TopologyReal, KnownMachinesHaveTheirIslands) {
  const std::string data = shared_data();
  if (data.empty()) GTEST_SKIP() << "no reference tables: set VITRINE_SHARED_DATA";
  for (const Machine& machine : kMachines) {
    SCOPED_TRACE(machine.file);
    const Topology t = read_topology(data + "/topo/" + machine.file);
    EXPECT_EQ(t.gpus.size(), machine.gpus);
    EXPECT_EQ(t.nics.size(), machine.nics);
    EXPECT_EQ(t.nvlink_islands(), machine.islands);
    EXPECT_EQ(t.nvlink_clique(machine.islands.front()), machine.clique);
  }
}

TEST(TopologyReal, EveryTableIsReadWholeAndSymmetric) {
  const std::string data = shared_data();
  if (data.empty()) GTEST_SKIP() << "no reference tables: set VITRINE_SHARED_DATA";
  size_t tables = 0;
  for (const auto& entry : std::filesystem::directory_iterator(data + "/topo")) {
    if (entry.path().extension() != ".txt") continue;
    SCOPED_TRACE(entry.path().filename().string());
    const Topology t = read_topology(entry.path().string());
    ++tables;
    size_t unknown = 0;
    for (size_t i = 0; i < t.gpus.size(); ++i) {
      for (size_t j = 0; j < t.links.size(); ++j) {
        EXPECT_EQ(t.links[i][j].kind, t.links[j][i].kind) << i << ", " << j;
        unknown += t.links[i][j].kind == LinkKind::kUnknown;
      }
    }
    // One table has a column that was mangled before it came here, and says so.
    EXPECT_EQ(unknown == 0, t.warnings.empty());
  }
  EXPECT_GE(tables, 30u);
}

TEST(TopologyReal, AffinityIsReadBehindTabsAndBlanks) {
  const std::string data = shared_data();
  if (data.empty()) GTEST_SKIP() << "no reference tables: set VITRINE_SHARED_DATA";
  const Topology tabs = read_topology(data + "/topo/03_4xV100_aws_p3_8xlarge.txt");
  EXPECT_EQ(tabs.cpu_affinity[2], "0-31");
  EXPECT_EQ(tabs.numa_node[2], -1);  // an empty cell, then N/A
  const Topology uneven = read_topology(data + "/topo/13_6x_pcie_uneven_numa.txt");
  EXPECT_EQ(uneven.numa_node, (std::vector<int32_t>{0, 0, 0, 0, 1, 1}));
  const Topology short_header =
      read_topology(data + "/topo/10_8xH100_pcie_crossed_nvlink_pairs.txt");
  EXPECT_EQ(short_header.numa_node, (std::vector<int32_t>{0, 0, 0, 1, 1, 1, 1, 1}));
  EXPECT_EQ(short_header.cpu_affinity[0], "");
}

}  // namespace
}  // namespace vitrine

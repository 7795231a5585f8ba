// Clusters by name, from a user's file, with topologies; what is refused.
#include "machines/cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "support/temporary_folder.h"
#include "support/text_files.h"

namespace vitrine {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

template <typename Call>
std::string error_of(Call call) {
  try {
    call();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

std::string refusal(const std::string& gpus) {
  return error_of([&] { make_cluster(gpus); });
}

TEST(Cluster, IsMadeFromANumberAndACard) {
  const Cluster h100 = make_cluster("64xH100");
  EXPECT_EQ(h100.gpus, 64);
  EXPECT_EQ(h100.gpus_per_node, 8);
  EXPECT_EQ(h100.nodes(), 8);
  EXPECT_EQ(h100.profile, "H100");
  EXPECT_STREQ(h100.card->name, "NVIDIA H100 SXM");
  EXPECT_EQ(h100.multiprocessors, 132);
  EXPECT_EQ(h100.link_bytes_per_s, 450e9);
  EXPECT_EQ(h100.network_bytes_per_s, 50e9);  // 400 Gb/s
  EXPECT_EQ(make_cluster("H200").gpus, 1);
  EXPECT_EQ(make_cluster("16384xH100").nodes(), 2048);
}

TEST(Cluster, TakesNamesHoweverTheyAreWritten) {
  for (const char* name : {"8xA100-40GB", "8 x a100 40gb", "8XA100_40GB", "8*A100-SXM4-40GB"}) {
    EXPECT_EQ(make_cluster(name).profile, "A100-40GB") << name;
    EXPECT_EQ(make_cluster(name).gpus, 8) << name;
  }
  EXPECT_EQ(make_cluster("8xA100").profile, "A100-80GB");
  EXPECT_EQ(make_cluster("5060Ti").profile, "RTX5060Ti");
  EXPECT_EQ(make_cluster("2xRTX PRO 6000").profile, "RTX-PRO-6000");
  EXPECT_EQ(make_cluster("64xAscend910B").profile, "Ascend-910B");
}

TEST(Cluster, OfEveryProfileIsWholeAndSaysItsSources) {
  for (const std::string& name : card_profiles()) {
    const Cluster cluster = make_cluster(name);
    ASSERT_NE(cluster.card, nullptr) << name;
    EXPECT_GT(cluster.card->memory_bytes, 0) << name;
    EXPECT_GT(cluster.card->fp16_flops_per_s, 0) << name;
    EXPECT_GT(cluster.card->memory_bytes_per_s, 0) << name;
    EXPECT_GT(cluster.pcie_bytes_per_s, 0) << name;
    EXPECT_GT(cluster.network_bytes_per_s, 0) << name;
    EXPECT_GT(cluster.link_latency_ns, 0) << name;
    EXPECT_GT(cluster.host_memory_bytes, 0) << name;
    EXPECT_GT(cluster.disk_bytes_per_s, 0) << name;
    EXPECT_GT(cluster.context_bytes, 0) << name;
    EXPECT_EQ(cluster.links == NodeLinks::kPcie, cluster.link_bytes_per_s == 0) << name;
    EXPECT_THAT(cluster.sources, Contains(StartsWith("efficiency"))) << name;
    EXPECT_THAT(cluster.sources, Contains(StartsWith("network"))) << name;
    EXPECT_THAT(cluster.sources, Contains(StartsWith("host"))) << name;
    EXPECT_THAT(cluster.sources, Contains(StartsWith("multiprocessors"))) << name;
  }
}

TEST(Cluster, OfADerivedProfileReplacesWhatItSaysAnew) {
  const Cluster pcie = make_cluster("8xH100-PCIe");
  EXPECT_EQ(pcie.links, NodeLinks::kPairs);
  EXPECT_EQ(pcie.island, 2);
  EXPECT_EQ(pcie.multiprocessors, 114);
  EXPECT_THAT(pcie.sources, Contains(HasSubstr("multiprocessors 114")));
  EXPECT_THAT(pcie.sources, Not(Contains(HasSubstr("multiprocessors 132"))));
  EXPECT_THAT(pcie.sources, Contains(StartsWith("host")));
  EXPECT_EQ(make_cluster("H100-96GB").card->memory_bytes, 96'000'000'000);
  EXPECT_EQ(make_cluster("H100-96GB").card->bf16_flops_per_s, 989.4e12);
}

// 72 cards are one NVLink domain; jobs of 64 or 256 take 64 of a rack, in trays of four.
TEST(Cluster, OfRacksSpreadsAJobEvenly) {
  EXPECT_EQ(make_cluster("72xGB200").gpus_per_node, 72);
  EXPECT_EQ(make_cluster("64xGB200").gpus_per_node, 72);
  EXPECT_EQ(make_cluster("144xGB200").gpus_per_node, 72);
  const Cluster cluster = make_cluster("256xGB300");
  EXPECT_EQ(cluster.gpus_per_node, 64);
  EXPECT_EQ(cluster.island, 64);
  EXPECT_EQ(cluster.nodes(), 4);
}

TEST(Cluster, RefusesUnknownCardsAndNumbers) {
  EXPECT_THAT(refusal("8xH10O"), AllOf(HasSubstr("did you mean \"H100\""), HasSubstr("MI300X")));
  EXPECT_THAT(refusal("8xTPU-v5p"), HasSubstr("Known: V100-32GB"));
  EXPECT_THAT(refusal("0xH100"), HasSubstr("from 1 to 1000000"));
  EXPECT_THAT(refusal("99999999999xH100"), HasSubstr("from 1 to 1000000"));
  EXPECT_THAT(refusal("-8xH100"), HasSubstr("\"64xH100\""));
  EXPECT_THAT(refusal(""), HasSubstr("\"64xH100\""));
  EXPECT_THAT(refusal("8x"), HasSubstr("the card is missing"));
  EXPECT_THAT(refusal("8x  "), HasSubstr("the card is missing"));
  EXPECT_THAT(refusal("64"), HasSubstr("which card?"));
}

class ProfileFile : public testing::Test {
 protected:
  std::string file(const std::string& text) { return write_file(folder_ / "mine.json", text); }
  std::string refused(const std::string& text, const std::string& gpus = "8xH100") {
    const std::string path = file(text);
    return error_of([&] { make_cluster(gpus, path); });
  }
  TemporaryFolder folder_;
};

TEST_F(ProfileFile, ChangesFieldsOverItsBase) {
  const std::string path = file(R"({
    "base": "h100", "name": "our H100", "network_bytes_per_s": 25e9, "price_per_hour": 2.5,
    "card": {"base": "NVIDIA H100 SXM", "name": "H100 at 500 W", "bf16_flops_per_s": 8e14},
    "efficiency": {"matmul": 0.9, "era": "measured by vitrine calibrate", "fitted_to": "a run"},
    "sources": ["network: ours, sure"]})");
  for (const char* gpus : {"16xH100", "16", "16xour H100"}) {
    const Cluster cluster = make_cluster(gpus, path);
    EXPECT_EQ(cluster.gpus, 16);
    EXPECT_EQ(cluster.profile, "our H100");
    EXPECT_EQ(cluster.network_bytes_per_s, 25e9);
    EXPECT_EQ(cluster.price_per_hour, 2.5);
    EXPECT_STREQ(cluster.card->name, "H100 at 500 W");
    EXPECT_EQ(cluster.card->bf16_flops_per_s, 8e14);
    EXPECT_EQ(cluster.card->memory_bytes, 80'000'000'000);
    EXPECT_EQ(cluster.efficiency.matmul, 0.9);
    EXPECT_EQ(cluster.efficiency.launch_ns, make_cluster("H100").efficiency.launch_ns);
    EXPECT_EQ(cluster.host_memory_bytes, 2e12);  // the base's
    EXPECT_THAT(cluster.sources, Contains("network: ours, sure"));
  }
}

TEST_F(ProfileFile, NeedsNoBaseWhereTheCardIsNamed) {
  const Cluster cluster = make_cluster("8xA100", file(R"({"price_per_hour": 1})"));
  EXPECT_EQ(cluster.profile, "A100-80GB");
  EXPECT_EQ(cluster.price_per_hour, 1);
}

TEST_F(ProfileFile, IsCheckedKeyByKey) {
  EXPECT_THAT(refused(R"({"netwrk_bytes_per_s": 1})"),
              AllOf(HasSubstr("netwrk_bytes_per_s"), HasSubstr("network_bytes_per_s")));
  EXPECT_THAT(refused(R"({"network_bytes_per_s": -1})"), HasSubstr("must be from 0 to"));
  EXPECT_THAT(refused(R"({"network_bytes_per_s": "fast"})"), HasSubstr("network_bytes_per_s"));
  EXPECT_THAT(refused(R"({"gpus_per_node": 0})"), HasSubstr("gpus_per_node"));
  EXPECT_THAT(refused(R"({"links": "rope"})"), HasSubstr("links"));
  EXPECT_THAT(refused(R"({"efficiency": {"matmul": 1.2}})"), HasSubstr("from 0.0001 to 1"));
  EXPECT_THAT(refused(R"({"efficiency": {"memory": 1e-300}})"), HasSubstr("efficiency.memory"));
  EXPECT_THAT(refused(R"({"efficiency": {"fill": 1e300}})"), HasSubstr("efficiency.fill"));
  EXPECT_THAT(refused(R"({"efficiency": {"communication": 11}})"), HasSubstr("to 10"));
  EXPECT_THAT(refused(R"({"efficiency": {"narow_ceiling": 0.5}})"),
              HasSubstr("\"narrow_ceiling\""));
  EXPECT_THAT(refused(R"({"link_bytes_per_s": 1e300})"), HasSubstr("link_bytes_per_s"));
  EXPECT_THAT(refused(R"({"link_bytes_per_s": 1e999})"), HasSubstr("not valid JSON"));
  EXPECT_THAT(refused(R"({"stacks": {"era": "x"}})"), HasSubstr("stacks: expected a list"));
  EXPECT_THAT(refused(R"({"stacks": [{"era": "x"}, {"memory": 2}]})"),
              HasSubstr("stacks[1].memory"));
  EXPECT_THAT(refused(R"({"measured_gpus": {"name": "X"}})"), HasSubstr("measured_gpus"));
  EXPECT_THAT(refused(R"({"efficiency": {"matmull": 0.5}})"), HasSubstr("matmul"));
  EXPECT_THAT(refused(R"({"card": "NVIDIA H1000 SXM"})"), HasSubstr("NVIDIA H100 SXM"));
  EXPECT_THAT(refused(R"({"card": {"name": "X"}})"), HasSubstr("memory_bytes"));
  EXPECT_THAT(refused(R"({"base": "H100", "tray": 3})"), HasSubstr("must divide gpus_per_node"));
  EXPECT_THAT(refused(R"({"base": "A100"})"), HasSubstr("neither the base (A100-80GB)"));
  EXPECT_THAT(refused(R"({"price_per_hour": 1})", "8"), HasSubstr("\"base\""));
  EXPECT_THAT(refused(R"({"name": "mine"})", "8xmine"), HasSubstr("\"base\""));
  EXPECT_THAT(refused("[]"), HasSubstr("expected an object"));
  EXPECT_THAT(refused("{"), HasSubstr("not valid JSON"));
  EXPECT_THROW(make_cluster("8xH100", "/nowhere/profile.json"), IoError);
}

// "measured" is in both names.
TEST_F(ProfileFile, StacksAreChosenByTheirWholeNameFirst) {
  const std::string path = file(R"({"base": "H100",
    "efficiency": {"era": "measured", "matmul": 0.5, "memory": 0.5},
    "stacks": [{"era": "vitrine, measured", "matmul": 0.6}]})");
  Cluster cluster = make_cluster("8xH100", path);
  choose_stack(cluster, "Measured");
  EXPECT_DOUBLE_EQ(cluster.efficiency.matmul, 0.5);
  choose_stack(cluster, "vitrine");
  EXPECT_DOUBLE_EQ(cluster.efficiency.matmul, 0.6);
  EXPECT_TRUE(is_of_profile(path, "H100"));
  EXPECT_TRUE(is_of_profile(path, "h100-sxm"));
  EXPECT_FALSE(is_of_profile(path, "H200"));
}

TEST_F(ProfileFile, CanBeATopology) {
  Cluster cluster = make_cluster("32xH100");
  const std::string path = file(R"({"gpus_per_node": 4, "network_bytes_per_s": 1e11})");
  apply_topology(cluster, path);
  EXPECT_EQ(cluster.gpus_per_node, 4);
  EXPECT_EQ(cluster.island, 4);
  EXPECT_EQ(cluster.link_bytes_per_s, 450e9);
  const std::string wrong = file(R"({"multiprocessors": 4})");
  EXPECT_THAT(error_of([&] { apply_topology(cluster, wrong); }), HasSubstr("multiprocessors"));
}

TEST(Topology, JoinsTheCardsInAnotherWay) {
  Cluster v100 = make_cluster("512xV100-32GB");
  EXPECT_EQ(v100.network_bytes_per_s, 12.5e9 / 8);  // one adapter of 100 Gb/s a node
  apply_topology(v100, "DGX-2");
  EXPECT_EQ(v100.nodes(), 32);
  EXPECT_EQ(v100.network_bytes_per_s, 6.25e9);
  EXPECT_EQ(v100.link_bytes_per_s, 150e9);
  Cluster h100 = make_cluster("16xH100");
  apply_topology(h100, "hgx-pcie-pairs");
  EXPECT_EQ(h100.links, NodeLinks::kPairs);
  EXPECT_EQ(h100.island, 2);
  for (const std::string& name : topologies()) {
    Cluster cluster = make_cluster("64xMTT-S4000");
    apply_topology(cluster, name);
    EXPECT_THAT(cluster.sources, Contains(StartsWith("topology"))) << name;
  }
  EXPECT_THAT(error_of([&] { apply_topology(h100, "dgx-h10"); }),
              AllOf(HasSubstr("did you mean \"dgx-h100\""), HasSubstr("kuae")));
}

}  // namespace
}  // namespace vitrine

// Constants from measurements whose answers are known, and the profile that has them.
#include "plan/fit_gpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "calibrate/measure_gpus.h"
#include "core/error.h"
#include "core/json.h"
#include "machines/cluster.h"
#include "machines/measured.h"
#include "plan/collective_time.h"
#include "support/temporary_folder.h"
#include "support/text_files.h"

namespace vitrine {
namespace {

using testing::HasSubstr;

constexpr double kProductRate = 50e12, kNarrowRate = 80e12, kPassRate = 0.8e12, kBus = 100e9;

// Products of equal edges, 1 GB passes and 256 MiB collectives at the rates above; a card that is
// in no table unless it has the name of one.
MeasuredGpus machine(const std::string& name, int count) {
  MeasuredGpus gpus;
  gpus.name = name;
  gpus.count = count;
  gpus.multiprocessors = 100;
  gpus.architecture = 80;
  gpus.memory_bytes = 64e9;
  gpus.copy_bytes_per_s = 1e12;
  gpus.upload_bytes_per_s = 24e9;
  gpus.download_bytes_per_s = 25e9;
  gpus.issue_ns = 2500;
  gpus.peaks = {{"f32", 10e12}, {"bf16", 100e12}, {"f8_e4m3", 200e12}};
  for (const double edge : {6400.0, 12800.0}) {
    const double forward = 2 * edge * edge * edge / kProductRate * 1e9;
    gpus.products.push_back({false, edge, edge, edge, forward, 2 * forward});
    // Largest magnitude read, then read and written in 8 bits: 5 bytes, counted as 6.
    const double roundings = 3 * 6 * edge * edge / kPassRate * 1e9;
    const double narrow = 6 * edge * edge * edge / kNarrowRate * 1e9;
    gpus.products.push_back({true, edge, edge, edge, narrow / 3, narrow * 2 / 3 + roundings});
  }
  gpus.passes = {{"add", false, 1e9, 1e18 / kPassRate}, {"adamw", false, 2e9, 2e18 / kPassRate}};
  if (count == 1) return gpus;
  const double bytes = 256 << 20, sent = bytes * (count - 1) / count;
  for (const char* kind : {"all_gather", "reduce_scatter"})
    gpus.collectives.push_back({kind, bytes, sent / (kBus / 2) * 1e9});
  for (const char* kind : {"gather_shared", "reduce_shared"})
    gpus.collectives.push_back({kind, bytes, sent / kBus * 1e9});
  gpus.collectives.push_back({"all_gather", 1 << 20, 1e9});  // latency, which says no rate
  return gpus;
}

TEST(FitGpus, FindsTheRatesOfAMachineThatNobodyListed) {
  const FittedGpus fit = fit_gpus(machine("Acme X1", 4));
  EXPECT_EQ(fit.base, "");
  EXPECT_DOUBLE_EQ(fit.bf16_flops_per_s, 100e12);
  EXPECT_DOUBLE_EQ(fit.memory_bytes_per_s, 1e12);
  EXPECT_DOUBLE_EQ(fit.ceiling, 1);
  EXPECT_NEAR(fit.memory, 0.8, 0.005);
  // Of the peak: half, and what a last wave and the filling of pipelines take of large products.
  EXPECT_NEAR(fit.matmul, kProductRate / 100e12, 0.03);
  EXPECT_NEAR(fit.narrow_share * fit.matmul, kNarrowRate / 200e12, 0.03);
  EXPECT_FALSE(fit.swiglu_in_products);
  // The link that gives copies their rate; NCCL has half of it.
  EXPECT_DOUBLE_EQ(fit.copies, 1);
  EXPECT_NEAR(fit.communication, 0.5, 0.01);
}

TEST(FitGpus, KeepsThePeaksOfACardThatIsKnown) {
  MeasuredGpus gpus = machine("NVIDIA H200", 1);
  gpus.architecture = 90;
  const FittedGpus fit = fit_gpus(gpus);
  EXPECT_EQ(fit.base, "H200");
  EXPECT_DOUBLE_EQ(fit.bf16_flops_per_s, 989.4e12);
  EXPECT_NEAR(fit.ceiling, 100 / 989.4, 1e-6);
  EXPECT_NEAR(fit.narrow_ceiling, 200 / 1978.9, 1e-6);
  EXPECT_NEAR(fit.memory, 0.8 / 4.8, 0.002);
  EXPECT_TRUE(fit.swiglu_in_products);
  EXPECT_EQ(fit.link_bytes_per_s, 0);  // one GPU says nothing about links
  EXPECT_EQ(fit.communication, 0);
}

TEST(FitGpus, RefusesACardWithoutProducts) {
  MeasuredGpus gpus = machine("Acme X1", 1);
  gpus.peaks = {{"f32", 1e12}};
  try {
    fit_gpus(gpus);
    FAIL() << "a card without bf16 was taken";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("Acme X1 computed nothing in bf16"));
  }
}

MeasuredHost host() { return {"a processor", 32, 256e9, 200e9, {2e9, 3e9}}; }

TEST(GpuProfile, IsAClusterWhoseCollectivesTakeWhatWasMeasured) {
  const TemporaryFolder folder;
  const std::string path = folder / "gpu.json";
  write_text_file(path, gpu_profile_text(machine("Acme X1", 4), host()));
  Cluster cluster = make_cluster("4", path);
  EXPECT_EQ(cluster.profile, "Acme X1");
  EXPECT_EQ(cluster.gpus_per_node, 4);
  EXPECT_EQ(cluster.multiprocessors, 100);
  EXPECT_DOUBLE_EQ(cluster.pcie_bytes_per_s, 24e9);
  EXPECT_DOUBLE_EQ(cluster.host_bytes_per_s, 200e9);
  EXPECT_DOUBLE_EQ(cluster.disk_bytes_per_s, 2e9);
  EXPECT_DOUBLE_EQ(cluster.efficiency.launch_ns, 2500);
  const double bytes = 256 << 20;
  const auto rate = [&] {
    return bytes * 3 / 4 / collective_ns(cluster, PlanCollective::kAllGather, bytes, {4, 4}) * 1e9;
  };
  EXPECT_NEAR(rate() / (kBus / 2), 1, 0.02);
  choose_stack(cluster, "vitrine");  // as plans of this engine's runs do
  EXPECT_THAT(cluster.efficiency.era, HasSubstr("measured"));
  EXPECT_NEAR(rate() / kBus, 1, 0.02);
  EXPECT_NEAR(cluster.efficiency.narrow_share, fit_gpus(machine("Acme X1", 4)).narrow_share, 1e-9);
}

TEST(GpuProfile, OverridesTheShippedOneOfItsCard) {
  const TemporaryFolder folder;
  const std::string path = folder / "gpu.json";
  MeasuredGpus gpus = machine("NVIDIA H200", 1);
  gpus.architecture = 90;
  write_text_file(path, gpu_profile_text(gpus, host()));
  Cluster cluster = make_cluster("16xH200", path);
  const Cluster shipped = make_cluster("16xH200");
  EXPECT_STREQ(cluster.card->name, "NVIDIA H200");
  EXPECT_EQ(cluster.gpus_per_node, shipped.gpus_per_node);  // one GPU says nothing about nodes
  EXPECT_DOUBLE_EQ(cluster.link_bytes_per_s, shipped.link_bytes_per_s);
  EXPECT_DOUBLE_EQ(cluster.network_bytes_per_s, shipped.network_bytes_per_s);
  EXPECT_DOUBLE_EQ(cluster.efficiency.matmul, fit_gpus(gpus).matmul);
  choose_stack(cluster, "vitrine");
  EXPECT_DOUBLE_EQ(cluster.efficiency.matmul, fit_gpus(gpus).matmul);
  EXPECT_TRUE(cluster.efficiency.swiglu_in_products);
  EXPECT_THROW(make_cluster("8xH100", path), ConfigError);
  // It says nothing about CPU ranks.
  EXPECT_THROW(read_measured(path), ConfigError);
}

TEST(MeasuredGpus, AreReadBackAsWritten) {
  const Json json = measured_gpus_json(machine("Acme X1", 2));
  EXPECT_EQ(measured_gpus_json(measured_gpus_from_json(json, "m")), json);
  Json wrong = json;
  wrong["products"][1]["backward_ns"] = 0;
  try {
    measured_gpus_from_json(wrong, "m");
    FAIL() << "a time of 0 was taken";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("m.products[1].backward_ns"));
  }
  wrong = json;
  wrong["passes"][0]["nanoseconds"] = 1;
  EXPECT_THROW(measured_gpus_from_json(wrong, "m"), ConfigError);
}

}  // namespace
}  // namespace vitrine

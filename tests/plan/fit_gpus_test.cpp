// Constants from measurements whose answers are known, and the profile that has them.
#include "plan/fit_gpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "calibrate/measure_gpus.h"
#include "core/error.h"
#include "core/json.h"
#include "machines/cluster.h"
#include "machines/measured.h"
#include "plan/collective_time.h"
#include "plan/predict.h"
#include "support/engine_harness.h"
#include "support/temporary_folder.h"
#include "support/text_files.h"

namespace vitrine {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr double kProductRate = 50e12, kNarrowRate = 80e12, kBus = 100e9;
constexpr double kPassRate = 0.05e12;  // so slow that roundings are a good part of fp8's time

// Products of whole waves of whole tiles, passes and 256 MiB collectives at the rates above, on a
// card that no table has unless it is given the name of one.
MeasuredGpus machine(const std::string& name, int count) {
  MeasuredGpus gpus;
  gpus.name = name;
  gpus.count = count;
  gpus.multiprocessors = 100;
  gpus.architecture = 90;  // where the model adds nothing for the filling of pipelines
  gpus.memory_bytes = 150e9;
  gpus.copy_bytes_per_s = 1e12;
  gpus.upload_bytes_per_s = 24e9;
  gpus.download_bytes_per_s = 25e9;
  gpus.issue_ns = 2500;
  gpus.peaks = {{"f32", 10e12}, {"bf16", 100e12}, {"f8_e4m3", 200e12}};
  for (const double edge : {12800.0, 25600.0}) {
    const double forward = 2 * edge * edge * edge / kProductRate * 1e9;
    gpus.products.push_back({false, edge, edge, edge, forward, 2 * forward});
    // Of three operands: the largest magnitude read, then read and written in 8 bits, 5 bytes an
    // element, which the planner prices as 6.
    const double roundings = 3 * 6 * edge * edge / kPassRate * 1e9;
    const double narrow = 6 * edge * edge * edge / kNarrowRate * 1e9;
    gpus.products.push_back({true, edge, edge, edge, narrow / 3, narrow * 2 / 3 + roundings});
  }
  gpus.passes = {{"add", false, 1e12, 1e21 / kPassRate}, {"adamw", false, 2e12, 2e21 / kPassRate}};
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
  EXPECT_DOUBLE_EQ(fit.card.bf16_flops_per_s, 100e12);
  EXPECT_DOUBLE_EQ(fit.card.memory_bytes_per_s, 1e12);
  EXPECT_DOUBLE_EQ(fit.ceiling, 1);
  EXPECT_NEAR(fit.memory, kPassRate / 1e12, 1e-5);
  EXPECT_NEAR(fit.matmul, kProductRate / 100e12, 1e-4);
  EXPECT_NEAR(fit.narrow_share * fit.matmul, kNarrowRate / 200e12, 1e-3);
  // The link that gives copies their rate; NCCL has half of it.
  EXPECT_DOUBLE_EQ(fit.copies, 1);
  EXPECT_NEAR(fit.communication, 0.5, 0.01);
  MeasuredGpus older = machine("Acme X1", 4);
  older.architecture = 80;
  EXPECT_TRUE(fit.swiglu_in_products);
  EXPECT_FALSE(fit_gpus(older).swiglu_in_products);
}

TEST(FitGpus, KeepsThePeaksOfACardThatIsKnown) {
  const FittedGpus fit = fit_gpus(machine("NVIDIA H200", 1));
  EXPECT_EQ(fit.base, "H200");
  EXPECT_DOUBLE_EQ(fit.card.bf16_flops_per_s, 989.4e12);
  EXPECT_NEAR(fit.ceiling, 100 / 989.4, 1e-6);
  EXPECT_NEAR(fit.narrow_ceiling, 200 / 1978.9, 1e-6);
  EXPECT_NEAR(fit.memory, kPassRate / 4.8e12, 1e-5);
  EXPECT_EQ(fit.link_bytes_per_s, 0);  // one GPU says nothing about links
  EXPECT_EQ(fit.communication, 0);
  // A part of one, with less memory, is another card.
  MeasuredGpus part = machine("NVIDIA H200 MIG 3g.71gb", 1);
  part.memory_bytes = 70e9;
  EXPECT_EQ(fit_gpus(part).base, "");
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

// Bytes a second that all-gathers of a profile's cluster move between `gpus` of one node.
double gather_rate(const Cluster& cluster, int gpus) {
  const double bytes = 256 << 20;
  return bytes * (gpus - 1) / gpus /
         collective_ns(cluster, PlanCollective::kAllGather, bytes, {gpus, gpus}) * 1e9;
}

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
  EXPECT_NEAR(gather_rate(cluster, 4) / (kBus / 2), 1, 0.02);
  choose_stack(cluster, "vitrine");  // as plans of this engine's runs do
  EXPECT_THAT(cluster.efficiency.era, HasSubstr("measured"));
  EXPECT_NEAR(gather_rate(cluster, 4) / kBus, 1, 0.02);
  EXPECT_NEAR(cluster.efficiency.narrow_share, fit_gpus(machine("Acme X1", 4)).narrow_share, 1e-9);
}

// Known ones: over a link of their own, and over PCIe alone, where the measured host link is what
// shares are of.
TEST(GpuProfile, OfAKnownCardHasItsMeasuredCollectivesToo) {
  const TemporaryFolder folder;
  const std::string path = folder / "gpu.json";
  for (const char* name : {"NVIDIA H200", "NVIDIA GeForce RTX 4090"}) {
    SCOPED_TRACE(name);
    write_text_file(path, gpu_profile_text(machine(name, 2), host()));
    Cluster cluster = make_cluster("2", path);
    EXPECT_NEAR(gather_rate(cluster, 2) / (kBus / 2), 1, 0.05);
    choose_stack(cluster, "vitrine");
    EXPECT_NEAR(gather_rate(cluster, 2) / kBus, 1, 0.05);
  }
}

// How many GPUs a process sees is not how many its machine has.
TEST(GpuProfile, KeepsTheNodeOfAKnownCard) {
  const TemporaryFolder folder;
  const std::string path = folder / "gpu.json";
  for (const std::string name : {"H200", "GB200"}) {
    SCOPED_TRACE(name);
    const Cluster shipped = make_cluster("2x" + name);
    MeasuredGpus gpus = machine(shipped.card->name, 2);
    gpus.memory_bytes = 1.05 * static_cast<double>(shipped.card->memory_bytes);
    write_text_file(path, gpu_profile_text(gpus, host()));
    const Cluster cluster = make_cluster("144", path);
    EXPECT_EQ(cluster.card, shipped.card);
    EXPECT_EQ(cluster.gpus_per_node, make_cluster("144x" + name).gpus_per_node);
    EXPECT_EQ(cluster.tray, shipped.tray);
  }
}

// Where nothing is known beyond the machine, a plan says so instead of dividing by zero.
TEST(GpuProfile, OfAnUnknownCardEndsAtItsNode) {
  const TemporaryFolder folder;
  const std::string path = folder / "gpu.json";
  write_text_file(path, gpu_profile_text(machine("Acme X1", 1), host()));
  ClusterStrategy s;
  s.sequence = 1024;
  s.global_batch = s.mesh.data = 8;
  Planner planner(model_shape("qwen2.5-0.5b"), make_cluster("8", path));
  try {
    planner.predict(s);
    FAIL() << "a network that nobody knows was planned with";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("network_bytes_per_s"));
  }
  s.global_batch = s.mesh.data = 1;
  Planner alone(model_shape("qwen2.5-0.5b"), make_cluster("1", path));
  const double step_ns = alone.predict(s).time.step_ns;
  EXPECT_TRUE(std::isfinite(step_ns) && step_ns > 0) << step_ns;
}

TEST(GpuProfile, OverridesTheShippedOneOfItsCard) {
  const TemporaryFolder folder;
  const std::string path = folder / "gpu.json";
  const MeasuredGpus gpus = machine("NVIDIA H200", 1);
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

// Rank r of three is r times as slow, and the last lacks a dtype.
TEST(MeasuredGpus, OfSeveralRanksAreTheSlowest) {
  const auto of_rank = [](int rank) {
    MeasuredGpus gpus = machine("Acme X1", 3);
    gpus.issue_ns *= 1 + rank;
    gpus.copy_bytes_per_s /= 1 + rank;
    gpus.products[1].backward_ns *= 3 - rank;
    if (rank == 2) gpus.peaks[2].flops_per_s = 0;
    return gpus;
  };
  std::vector<MeasuredGpus> results(3);
  testing::on_ranks(3, [&](int rank, World* world) {
    MeasuredGpus gpus = of_rank(rank);
    const auto host = world->host_group({0, 1, 2}, "test");
    check_same_kind(*host, gpus);
    take_slowest(*host, gpus);
    results[static_cast<size_t>(rank)] = gpus;
  });
  for (const MeasuredGpus& gpus : results) {
    EXPECT_DOUBLE_EQ(gpus.issue_ns, of_rank(2).issue_ns);
    EXPECT_DOUBLE_EQ(gpus.copy_bytes_per_s, of_rank(2).copy_bytes_per_s);
    EXPECT_DOUBLE_EQ(gpus.products[1].backward_ns, of_rank(0).products[1].backward_ns);
    EXPECT_EQ(gpus.peaks[2].flops_per_s, 0);
    EXPECT_EQ(gpus.peaks[1].flops_per_s, of_rank(0).peaks[1].flops_per_s);
  }
}

TEST(MeasuredGpus, OfDifferentCardsOrNumbersAreRefused) {
  const auto refusal = [](const std::function<void(MeasuredGpus&)>& change) -> std::string {
    try {
      testing::on_ranks(2, [&](int rank, World* world) {
        MeasuredGpus gpus = machine("Acme X1", 2);
        if (rank == 1) change(gpus);
        const auto host = world->host_group({0, 1}, "test");
        check_same_kind(*host, gpus);
        take_slowest(*host, gpus);
      });
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal([](MeasuredGpus&) {}), "");
  EXPECT_THAT(refusal([](MeasuredGpus& gpus) { gpus.name = "Acme X2"; }),
              AllOf(HasSubstr("Acme X1"), HasSubstr("Acme X2"), HasSubstr("not of one kind")));
  EXPECT_THAT(refusal([](MeasuredGpus& gpus) { gpus.passes.pop_back(); }),
              HasSubstr("did not measure the same"));
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

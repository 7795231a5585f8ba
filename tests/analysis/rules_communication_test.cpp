// Rules on communication, waiting and pipelines: each with the fault, nearly with it, without it,
// and where it must abstain.
#include <gtest/gtest.h>

#include "analysis/facts_builder.h"

namespace vitrine {
namespace {

JobFacts job_with(const CollectiveOf& of, size_t ranks = 2) {
  std::vector<RankFacts> all;
  for (size_t i = 0; i < ranks; ++i) all.push_back(busy_rank(static_cast<int32_t>(i)));
  JobFacts job = job_of(std::move(all));
  job.straggler.tested = true;
  add_collective(job, of);
  return job;
}

TEST(ExposedGradientSync, SaysOneBucket) {
  const auto found =
      warned(diagnose(job_with({.ms = 10, .exposed_ms = 10})), "exposed_gradient_sync");
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->cost_ns, 10 * kMs);
  EXPECT_EQ(found->title, "Gradient sync in one bucket");
  EXPECT_TRUE(says(*found, "overlap 0.0 %"));
  EXPECT_TRUE(says(*found, "bucket_cap_mb"));
  EXPECT_TRUE(says(*found, "32.0 MiB"));
}

TEST(ExposedGradientSync, IsNothingWhereBackwardHidesIt) {
  EXPECT_FALSE(warned(diagnose(job_with({.ms = 20, .exposed_ms = 1})), "exposed_gradient_sync"));
  EXPECT_FALSE(find(diagnose(job_with({.ms = 20, .exposed_ms = 0})), "exposed_gradient_sync"));
}

TEST(ExposedGradientSync, ChargesNoWaiting) {
  // Rank 0 waits 9 of 10 ms for rank 1.
  const Diagnosis diagnosis = diagnose(job_with({.ms = 10, .exposed_ms = 10, .waits = {9, 0}}));
  const auto sync = find(diagnosis, "exposed_gradient_sync");
  ASSERT_TRUE(sync.has_value());
  EXPECT_EQ(sync->cost_ns, kMs);  // of rank 0: the lower of the two ranks' medians
  const auto wait = warned(diagnosis, "collective_wait");
  ASSERT_TRUE(wait.has_value());
  EXPECT_EQ(wait->cost_ns, 9 * kMs / 2);
}

TEST(ExposedGradientSync, KnowsAccumulationWithoutNoSync) {
  JobFacts job = job_of({busy_rank(0), busy_rank(1)});
  for (int pass = 0; pass < 3; ++pass) {
    add_collective(job, {.bytes = 8 << 20, .ms = 4, .exposed_ms = 2});
    add_collective(job, {.bytes = 16 << 20, .ms = 4, .exposed_ms = 2});
  }
  const auto found = warned(diagnose(job), "exposed_gradient_sync");
  ASSERT_TRUE(found.has_value());
  EXPECT_TRUE(says(*found, "reduced 3 times a step"));
  EXPECT_TRUE(says(*found, "no_sync()"));
}

TEST(ExposedGradientSync, KnowsTheLastBucket) {
  JobFacts job = job_of({busy_rank(0), busy_rank(1)});
  add_collective(job, {.bytes = 25 << 20, .ms = 6, .exposed_ms = 0});
  add_collective(job, {.bytes = 20 << 20, .ms = 6, .exposed_ms = 5});
  const auto found = warned(diagnose(job), "exposed_gradient_sync");
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->title, "Last gradient bucket exposed");
}

TEST(ExposedGradientSync, OfOneRankAloneIsLessSure) {
  const auto found =
      warned(diagnose(job_with({.ms = 30, .exposed_ms = 30}, 1)), "exposed_gradient_sync");
  ASSERT_TRUE(found.has_value());
  EXPECT_LE(found->confidence, 0.5);
  EXPECT_EQ(found->severity, Severity::kWarning);  // 30 %, yet never critical on half the evidence
  EXPECT_TRUE(says(*found, "Other ranks' traces are missing"));
}

TEST(ExposedGradientSync, AbstainsOnARecordingThatOnlyCommunicates) {
  JobFacts job = job_with({.ms = 100, .exposed_ms = 100}, 1);
  const Diagnosis diagnosis = diagnose(job);
  EXPECT_FALSE(find(diagnosis, "exposed_gradient_sync"));
  EXPECT_TRUE(abstained(diagnosis, "exposed_gradient_sync"));
}

TEST(ExposedGradientSync, SharesTheTimeOfCollectivesThatRunAtOnce) {
  JobFacts job = job_of({busy_rank(0)});
  add_collective(job, {.name = "reduce_scatter", .ms = 30, .exposed_ms = 30});
  add_collective(job, {.name = "all_gather", .ms = 30, .exposed_ms = 30});
  // Both on the device in the same 30 ms.
  for (StepFacts& step : job.ranks[0].steps) {
    step.device.exposed_communication_ns = step.time.exposed_communication_ns = 30 * kMs;
    step.device.compute_ns = step.time.compute_ns = 70 * kMs;
  }
  const Diagnosis diagnosis = diagnose(job);
  EXPECT_EQ(find(diagnosis, "exposed_gradient_sync")->cost_ns, 15 * kMs);
  EXPECT_EQ(find(diagnosis, "exposed_communication")->cost_ns, 15 * kMs);
}

TEST(ExposedGradientSync, CountsCollectivesWithoutAStepWhereTheyRan) {
  JobFacts job = job_with({.ms = 10, .exposed_ms = 10});
  for (RankFacts& rank : job.ranks) {
    for (CollectiveUse& use : rank.collectives) use.step = -1;
  }
  EXPECT_EQ(find(diagnose(job), "exposed_gradient_sync")->cost_ns, 10 * kMs);
  for (RankFacts& rank : job.ranks) {
    for (CollectiveUse& use : rank.collectives) use.start_ns += 1000 * kMs;  // after the last step
  }
  EXPECT_FALSE(find(diagnose(job), "exposed_gradient_sync"));
}

TEST(ExposedCommunication, TellsGathersFromExchanges) {
  const auto gather = warned(
      diagnose(
          job_with({.name = "all_gather", .ms = 8, .exposed_ms = 8, .phase = Phase::kForward})),
      "exposed_communication");
  ASSERT_TRUE(gather.has_value());
  EXPECT_TRUE(says(*gather, "set_modules_to_forward_prefetch"));
  const auto exchange = warned(
      diagnose(
          job_with({.name = "all_to_all", .ms = 8, .exposed_ms = 8, .phase = Phase::kForward})),
      "exposed_communication");
  ASSERT_TRUE(exchange.has_value());
  EXPECT_TRUE(says(*exchange, "all_to_all"));
}

JobFacts with_bandwidth(double reached, double expected) {
  JobFacts job = job_with({.ms = 10, .exposed_ms = 10});
  CollectiveKind kind;
  kind.name = "all_reduce";
  kind.group = "0";
  kind.count = 4;
  kind.bytes = 32 << 20;
  kind.bus_bytes_per_s = reached;
  kind.expected_bytes_per_s = expected;
  kind.expected_from = "NVLink of NVIDIA H200";
  job.collective_kinds.push_back(kind);
  return job;
}

TEST(SlowCollective, TakesItsPartOfTheExposedTransfer) {
  const Diagnosis diagnosis = diagnose(with_bandwidth(20e9, 200e9));
  const auto slow = warned(diagnosis, "slow_collective");
  ASSERT_TRUE(slow.has_value());
  // At four fifths of 200 GB/s the 10 ms would be 1.25.
  EXPECT_NEAR(static_cast<double>(slow->cost_ns), 8.75e6, 10);
  EXPECT_TRUE(says(*slow, "20.0 GB/s"));
  EXPECT_TRUE(says(*slow, "NCCL_DEBUG=INFO"));
  const auto sync = find(diagnosis, "exposed_gradient_sync");
  ASSERT_TRUE(sync.has_value());
  EXPECT_NEAR(static_cast<double>(sync->cost_ns + slow->cost_ns), 10e6, 20);
}

TEST(SlowCollective, KnowsExchangesThatWereMatchedAsAllToAll) {
  // The uses say "send_receive" without a group, their kind is an all-to-all of both ranks.
  JobFacts job = job_with({.name = "send_receive", .ms = 10, .exposed_ms = 10});
  for (RankFacts& rank : job.ranks) {
    for (CollectiveUse& use : rank.collectives) use.group = -1;
  }
  for (MatchedCollective& matched : job.collectives) {
    matched.name = "all_to_all";
    matched.group.clear();
    matched.ranks = {0, 1};
  }
  CollectiveKind kind;
  kind.name = "all_to_all";
  kind.ranks = {0, 1};
  kind.bytes = 32 << 20;
  kind.count = 4;
  kind.bus_bytes_per_s = 20e9;
  kind.expected_bytes_per_s = 200e9;
  kind.expected_from = "NVLink of a card";
  job.collective_kinds = {kind};
  const auto slow = warned(diagnose(job), "slow_collective");
  ASSERT_TRUE(slow.has_value());
  EXPECT_NEAR(static_cast<double>(slow->cost_ns), 8.75e6, 10);
}

TEST(SlowCollective, LeavesAUsualSpeedAlone) {
  EXPECT_FALSE(find(diagnose(with_bandwidth(110e9, 200e9)), "slow_collective"));
}

TEST(SlowCollective, AbstainsWithoutTheLinksFigure) {
  const Diagnosis diagnosis = diagnose(with_bandwidth(20e9, 0));
  EXPECT_FALSE(find(diagnosis, "slow_collective"));
  EXPECT_TRUE(abstained(diagnosis, "slow_collective"));
}

NcclFacts log_with(const std::string& transport, int64_t channels, bool rdma = false) {
  NcclFacts log;
  log.source = "nccl.log";
  for (int32_t i = 0; i < channels; ++i) log.channels.push_back({0, 1, transport, rdma, i});
  return log;
}

TEST(SlowCollective, ExplainsItByTheLog) {
  JobFacts job = with_bandwidth(20e9, 200e9);
  job.nccl.push_back(log_with("SHM/direct/direct", 8));
  job.nccl.back().environment["NCCL_P2P_DISABLE"] = "1";
  const auto set = warned(diagnose(job), "slow_collective");
  ASSERT_TRUE(set.has_value());
  EXPECT_TRUE(says(*set, "NCCL_P2P_DISABLE is set"));
  EXPECT_TRUE(says(*set, "SHM 8"));
  EXPECT_TRUE(says(*set, "unset NCCL_P2P_DISABLE"));
  job.nccl.back().environment.clear();
  EXPECT_TRUE(says(*warned(diagnose(job), "slow_collective"), "SHM transport"));
}

Topology two_islands() {
  Topology topology;
  topology.source = "topo.txt";
  topology.gpus = {"GPU0", "GPU1", "GPU2", "GPU3"};
  topology.links.assign(4, std::vector<Topology::Link>(4, {LinkKind::kSystem, 0}));
  for (size_t i = 0; i < 4; ++i) topology.links[i][i] = {LinkKind::kSelf, 0};
  for (const auto& [a, b] : {std::pair<size_t, size_t>{0, 1}, {2, 3}}) {
    topology.links[a][b] = topology.links[b][a] = {LinkKind::kNvlink, 4};
  }
  return topology;
}

LayoutFacts::Group group_of(const std::string& role, std::vector<int32_t> ranks) {
  LayoutFacts::Group group;
  group.role = role;
  group.name = role;
  group.ranks = std::move(ranks);
  group.uses = 10;
  return group;
}

TEST(Islands, WarnsOfTensorGroupsAcrossAndNotesOthers) {
  JobFacts job = job_of({busy_rank(0), busy_rank(1), busy_rank(2), busy_rank(3)});
  job.topologies.push_back(two_islands());
  job.layout.groups = {group_of("tensor", {0, 2})};
  const auto across = warned(diagnose(job), "islands");
  ASSERT_TRUE(across.has_value());
  EXPECT_TRUE(says(*across, "{GPU0, GPU1} {GPU2, GPU3}"));
  job.layout.groups = {group_of("data", {0, 2})};
  EXPECT_FALSE(warned(diagnose(job), "islands"));
  EXPECT_TRUE(find(diagnose(job), "islands"));
  job.layout.groups = {group_of("tensor", {0, 1})};
  EXPECT_FALSE(find(diagnose(job), "islands"));
  job.topologies.push_back(two_islands());
  EXPECT_TRUE(abstained(diagnose(job), "islands"));
}

TEST(MultiNode, KnowsSocketsBesideInfinibandAndMissingRdma) {
  JobFacts job = job_of({busy_rank(0), busy_rank(1)});
  job.ranks[0].host = "a";
  job.ranks[1].host = "b";
  EXPECT_TRUE(abstained(diagnose(job), "multi_node"));
  job.nccl.push_back(log_with("NET/Socket/0", 4));
  EXPECT_FALSE(find(diagnose(job), "multi_node"));  // nothing better is known to be there
  job.nccl.back().environment["NCCL_IB_DISABLE"] = "1";
  const auto off = warned(diagnose(job), "multi_node");
  ASSERT_TRUE(off.has_value());
  EXPECT_TRUE(says(*off, "NCCL_IB_DISABLE=1"));
  EXPECT_TRUE(says(*off, "whether the hosts have such cards is not known"));
  job.nccl = {log_with("NET/IB/0", 4)};
  EXPECT_EQ(warned(diagnose(job), "multi_node")->title, "No GPU-direct RDMA");
  job.nccl = {log_with("NET/IB/0", 4, true)};
  EXPECT_FALSE(find(diagnose(job), "multi_node"));
  EXPECT_TRUE(abstained(diagnose(job), "multi_node"));  // which ranks it holds is not known
  job.ranks[1].host = "a";
  EXPECT_FALSE(find(diagnose(job), "multi_node"));
}

// Four ranks on two hosts whose channels between them go by card 0.
JobFacts two_hosts(int32_t ranks_in_log) {
  JobFacts job = job_of({busy_rank(0), busy_rank(1), busy_rank(2), busy_rank(3)});
  NcclFacts log = log_with("NET/IB/0", 4, true);
  log.network_devices = {"mlx5_0:1/IB", "mlx5_1:1/IB", "mlx5_2:1/IB"};
  for (int32_t i = 0; i < ranks_in_log; ++i) {
    job.ranks[static_cast<size_t>(i)].host = i < 2 ? "a" : "b";
    NcclFacts::Communicator one;
    one.rank = i;
    one.ranks = 4;
    one.nodes = 2;
    one.host = i < 2 ? "a" : "b";
    log.communicators.push_back(one);
  }
  for (NcclFacts::Channel& channel : log.channels) channel.communicator = 0;
  log.channels.push_back({2, 3, "NET/IB/0", true, 9, 0});
  job.nccl.push_back(log);
  return job;
}

TEST(MultiNode, JudgesNetworkCardsByHostAndOnlyWithAllRanks) {
  EXPECT_TRUE(says(*warned(diagnose(two_hosts(4)), "multi_node"), "use 1 of 3 network cards"));
  EXPECT_TRUE(abstained(diagnose(two_hosts(3)), "multi_node"));
  EXPECT_FALSE(find(diagnose(two_hosts(3)), "multi_node"));
  // One rank a host needs one card.
  JobFacts single = two_hosts(4);
  for (int32_t i = 0; i < 4; ++i) {
    single.nccl[0].communicators[static_cast<size_t>(i)].host = "host" + std::to_string(i);
  }
  EXPECT_FALSE(find(diagnose(single), "multi_node"));
}

TEST(Islands, TakeThePhysicalCardWhereTheLogNamesIt) {
  JobFacts job = job_of({busy_rank(0), busy_rank(1)});
  job.topologies.push_back(two_islands());
  job.layout.groups = {group_of("tensor", {0, 1})};
  NcclFacts log;
  for (int32_t i = 0; i < 2; ++i) {
    NcclFacts::Communicator one;
    one.rank = i;
    one.ranks = 2;
    one.cuda_device = i;
    one.nvml_device = 2 * i;  // CUDA_VISIBLE_DEVICES=0,2
    log.communicators.push_back(one);
  }
  job.nccl.push_back(log);
  EXPECT_TRUE(warned(diagnose(job), "islands"));
  for (NcclFacts::Communicator& one : job.nccl[0].communicators) one.nvml_device = -1;
  EXPECT_FALSE(find(diagnose(job), "islands"));
}

TEST(TensorParallelWide, WarnsFromATenthOfTheStep) {
  for (const int64_t ms : {15, 5}) {
    JobFacts job = job_with({.ms = ms, .exposed_ms = ms, .phase = Phase::kForward});
    job.layout.tensor = 2;
    job.layout.groups = {group_of("tensor", {0, 1})};
    job.layout.groups[0].name = "0";
    const Diagnosis diagnosis = diagnose(job);
    EXPECT_EQ(warned(diagnosis, "tensor_parallel_wide").has_value(), ms == 15);
    EXPECT_TRUE(find(diagnosis, "tensor_parallel_wide"));
    EXPECT_FALSE(find(diagnosis, "exposed_communication"));  // charged once
    job.ranks[0].host = "a";
    job.ranks[1].host = "b";
    EXPECT_EQ(warned(diagnose(job), "tensor_parallel_wide")->title,
              "Tensor parallelism across hosts");
  }
}

TEST(Straggler, NamesTheRankAndItsOwnReason) {
  JobFacts job = job_with({.ms = 20, .exposed_ms = 20, .waits = {19, 0}});
  job.straggler.stragglers.push_back(
      {1, 4, 4, 19 * kMs, 1e-5, "compute", "compute 60 ms against 40 ms", {"gemm: 20 ms more"}});
  const Diagnosis diagnosis = diagnose(job);
  const auto late = warned(diagnosis, "straggler");
  ASSERT_TRUE(late.has_value());
  EXPECT_EQ(diagnosis.findings[0].rule, "straggler");
  EXPECT_EQ(late->ranks, std::vector<int32_t>{1});
  EXPECT_EQ(late->title, "Straggler: rank 1, by compute");
  EXPECT_EQ(late->cost_ns, 19 * kMs);
  EXPECT_TRUE(says(*late, "gemm: 20 ms more"));
  EXPECT_TRUE(says(*late, "waiting, not bandwidth"));
  EXPECT_FALSE(find(diagnosis, "collective_wait"));  // charged once
}

TEST(Straggler, HasWordsAndFixesForEveryReason) {
  for (const char* reason : {"compute", "host", "input", "copy", "allocator", "profiler"}) {
    JobFacts job = job_with({.ms = 20, .exposed_ms = 20, .waits = {19, 0}});
    job.straggler.stragglers.push_back({1, 4, 4, 19 * kMs, 1e-4, reason, "", {}});
    const auto late = warned(diagnose(job), "straggler");
    ASSERT_TRUE(late.has_value()) << reason;
    EXPECT_FALSE(says(*late, "does not tell")) << reason;
    EXPECT_FALSE(says(*late, "to see what its host does")) << reason;
  }
}

TEST(Straggler, AbstainsWhereNothingWasTested) {
  JobFacts job = job_with({.ms = 20, .exposed_ms = 20, .waits = {19, 0}});
  job.straggler.tested = false;
  job.straggler.note = "two steps are too few";
  const Diagnosis diagnosis = diagnose(job);
  EXPECT_TRUE(abstained(diagnosis, "straggler"));
  EXPECT_FALSE(find(diagnosis, "straggler"));
}

TEST(CollectiveWait, FollowsTheWaitingToTheLateRanksOwnReason) {
  JobFacts job = job_with({.ms = 20, .exposed_ms = 20, .waits = {19, 0}});
  add_idle(job.ranks[1], IdleCause::kHostLaunch, 15);
  const auto found = warned(diagnose(job), "collective_wait");
  ASSERT_TRUE(found.has_value());
  EXPECT_TRUE(says(*found, "mostly for rank 1"));
  EXPECT_TRUE(says(*found, "rank 1 spends 15.0 ms a step idle because its host launches late"))
      << all_text(*found);
  EXPECT_TRUE(says(*found, "waiting, not bandwidth"));
  // The place is in the waiting rank's own time.
  const auto& place = found->evidence.back();
  EXPECT_EQ(place.rank, 0);
  EXPECT_GT(place.end_ns, place.begin_ns);
}

TEST(CollectiveWait, HoldsForExchangesThatSendAndReceiveAtOnceButNotBetweenStages) {
  JobFacts job = job_with({.name = "send_receive", .ms = 20, .exposed_ms = 20, .waits = {19, 0}});
  EXPECT_TRUE(warned(diagnose(job), "collective_wait"));
  job.pipeline.emplace();
  EXPECT_FALSE(find(diagnose(job), "collective_wait"));
  EXPECT_FALSE(find(diagnose(job), "exposed_communication"));
}

TEST(CollectiveWait, LeavesWhatIsLoadingOnBothSidesToTheInput) {
  JobFacts job = job_with({.ms = 30, .exposed_ms = 30, .waits = {29, 0}});
  add_idle(job.ranks[1], IdleCause::kDataLoading, 40);
  for (StepFacts& step : job.ranks[0].steps) step.data_ns = 40 * kMs;  // hidden behind its waiting
  const Diagnosis diagnosis = diagnose(job);
  EXPECT_EQ(warned(diagnosis, "input_starvation")->cost_ns, 40 * kMs);
  EXPECT_FALSE(find(diagnosis, "collective_wait"));
}

TEST(CollectiveWait, IsNothingForTransferAlone) {
  EXPECT_FALSE(find(diagnose(job_with({.ms = 20, .exposed_ms = 20})), "collective_wait"));
  EXPECT_FALSE(find(diagnose(job_of({busy_rank(0)})), "collective_wait"));
}

JobFacts pipeline(int32_t micro_batches, int64_t host_ms, int64_t second_compute_ms = 40) {
  JobFacts job = job_of({busy_rank(0), busy_rank(1)});
  job.layout.pipeline = 2;
  PipelineFacts pipe;
  pipe.stages = 2;
  pipe.micro_batches = micro_batches;
  pipe.order = "1f1b";
  pipe.ideal_bubble = 1.0 / (micro_batches + 1);
  for (int32_t i = 0; i < 2; ++i) {
    PipelineStage stage;
    stage.stage = i;
    stage.ranks = {i};
    stage.step_ns = 100 * kMs;
    stage.compute_ns = (i == 0 ? 40 : second_compute_ms) * kMs;
    stage.host_bound_ns = i == 0 ? host_ms * kMs : 0;
    stage.schedule_ns = 10 * kMs;
    stage.waiting_ns = i == 1 ? host_ms * kMs : 0;
    stage.bubble_ns = stage.schedule_ns + stage.waiting_ns;
    pipe.by_stage.push_back(stage);
  }
  job.pipeline = pipe;
  return job;
}

TEST(PipelineBubble, TellsTheScheduleFromWaitingAndNamesTheHostBoundStage) {
  const auto found = warned(diagnose(pipeline(8, 30)), "pipeline_bubble");
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->title, "Pipeline bubble: stage 0 host-bound");
  EXPECT_EQ(found->ranks, std::vector<int32_t>{0});
  EXPECT_EQ(found->cost_ns, 40 * kMs);
  EXPECT_TRUE(says(*found, "by schedule 10.0 ms, by waiting for a late stage 15.0 ms"));
}

TEST(PipelineBubble, KnowsTooFewMicroBatchesAndUnbalancedStages) {
  EXPECT_TRUE(says(*warned(diagnose(pipeline(2, 0)), "pipeline_bubble"), "too few micro-batches"));
  EXPECT_TRUE(says(*warned(diagnose(pipeline(8, 0, 80)), "pipeline_bubble"), "unbalanced stages"));
  // Four a stage: what is left is the price of the layout.
  EXPECT_FALSE(warned(diagnose(pipeline(8, 0)), "pipeline_bubble"));
  EXPECT_TRUE(find(diagnose(pipeline(8, 0)), "pipeline_bubble"));
}

TEST(PipelineBubble, LeavesOutStagesWhoseRanksWereNotRead) {
  JobFacts job = pipeline(8, 0);
  job.pipeline->by_stage[1] = {};
  job.pipeline->by_stage[1].stage = 1;
  const auto found = find(diagnose(job), "pipeline_bubble");
  ASSERT_TRUE(found.has_value());
  EXPECT_FALSE(says(*found, "unbalanced"));
  EXPECT_EQ(found->cost_ns, 10 * kMs);
  EXPECT_TRUE(says(*found, "stage 1: its ranks were not read"));
  job.pipeline->by_stage[0] = {};
  EXPECT_TRUE(abstained(diagnose(job), "pipeline_bubble"));
  EXPECT_FALSE(find(diagnose(job), "pipeline_bubble"));
}

TEST(PipelineBubble, OwnsWhatAStagesHostCosts) {
  for (const IdleCause cause : {IdleCause::kHostLaunch, IdleCause::kDataLoading}) {
    JobFacts job = pipeline(8, 30);
    job.pipeline->by_stage[1].host_bound_ns = 30 * kMs;
    for (RankFacts& rank : job.ranks) add_idle(rank, cause, 30);
    const Diagnosis diagnosis = diagnose(job);
    EXPECT_FALSE(find(diagnosis, "launch_bound"));
    EXPECT_FALSE(find(diagnosis, "input_starvation"));
    const bool data = cause == IdleCause::kDataLoading;
    EXPECT_EQ(says(*warned(diagnosis, "pipeline_bubble"), "waits for its next batch"), data);
    // What goes beyond it is theirs.
    for (RankFacts& rank : job.ranks) add_idle(rank, cause, 15);
    const auto more = warned(diagnose(job), data ? "input_starvation" : "launch_bound");
    ASSERT_TRUE(more.has_value());
    EXPECT_NEAR(static_cast<double>(more->cost_ns), 15e6, 10);
  }
}

TEST(PipelineBubble, AbstainsWhereStagesWereNotMeasured) {
  JobFacts job = pipeline(8, 0);
  job.pipeline.reset();
  EXPECT_TRUE(abstained(diagnose(job), "pipeline_bubble"));
  EXPECT_FALSE(find(diagnose(job_of({busy_rank(0)})), "pipeline_bubble"));
}

TEST(OutlierStep, IsChargedOnceForAllRanks) {
  JobFacts job = job_of({busy_rank(0, 100, 10), busy_rank(1, 100, 10)});
  job.outliers = {{0, 3, 50 * kMs, "allocator", "12 cudaMalloc"},
                  {1, 3, 40 * kMs, "allocator", ""}};
  const auto found = warned(diagnose(job), "outlier_step");
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->steps, std::vector<int32_t>{3});
  EXPECT_EQ(found->cost_ns, 5 * kMs);
  EXPECT_TRUE(says(*found, "expandable_segments"));
  job.outliers = {{0, 0, 50 * kMs, "first step", ""}};
  EXPECT_FALSE(warned(diagnose(job), "outlier_step"));
}

}  // namespace
}  // namespace vitrine

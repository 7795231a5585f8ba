// Hand-made facts of a job of four ranks in two pipeline stages, with every section of the page,
// and timelines to go with them.
#pragma once

#include "analysis/finding.h"
#include "analysis/job_facts.h"
#include "report/report.h"
#include "timeline/synthetic_run.h"

namespace vitrine {

inline constexpr const char* kHostileName =
    "</script><img src=x onerror=\"document.title='broken'\"><b>& \"quotes\"";

struct SampleJob {
  Timeline timeline;
  JobFacts job;
  Diagnosis diagnosis;

  SampleJob() {
    SyntheticRun run;
    run.blocks = 6;
    timeline = synthetic_run(run);
    timeline.ranks[0].spans.name[5] = timeline.ranks[0].strings.intern(kHostileName);
    for (auto& rank : timeline.ranks) job.ranks.push_back(facts_of(rank));
    job.world_size = 4;
    add_communication();
    add_pipeline();
    add_topology();
    add_findings();
  }
  SampleJob(const SampleJob&) = delete;

  ReportInput input() const {
    ReportInput out;
    out.title = "sample <job>";
    out.subtitle = "four ranks, made by hand";
    out.footer = "Vitrine";
    out.job = &job;
    out.diagnosis = &diagnosis;
    for (const auto& rank : timeline.ranks) out.timelines.push_back(encode_timeline(rank));
    for (int64_t step = 1; step <= 40; ++step) out.metrics.steps.push_back(step);
    std::vector<double> loss;
    for (const int64_t step : out.metrics.steps) loss.push_back(4.0 / double(step));
    out.metrics.columns = {{"loss", loss}};
    return out;
  }

 private:
  static RankFacts facts_of(const RankTimeline& timeline) {
    RankFacts out;
    const RankFacts measured = measure_rank(timeline);
    const Breakdown& whole = measured.total;
    out.rank = timeline.rank, out.world_size = 4;
    out.source = "rank" + std::to_string(timeline.rank) + ".json.gz";
    out.origin = "PyTorch profiler", out.device = "Card 80GB", out.host = "node0";
    out.device_work = true;
    out.begin_ns = timeline.spans.start_ns.front();
    out.end_ns = out.begin_ns + whole.span_ns;
    out.total = whole;
    for (const auto& step : measured.steps) {
      StepFacts facts;
      facts.name = "ProfilerStep#" + std::to_string(step.step), facts.step = step.step;
      facts.start_ns = step.start_ns, facts.duration_ns = step.time.span_ns;
      facts.time = step.time;
      facts.phase_ns = {step.time.compute_ns / 3, step.time.compute_ns / 2, 0, 0};
      out.steps.push_back(facts);
    }
    out.phase_ns = {whole.compute_ns / 3, whole.compute_ns / 2, 5000000, 0};
    out.class_ns = {whole.compute_ns / 2, whole.compute_ns / 3, 0, 9000000, 0, 0, 0, 0, 1};
    out.idle_by_cause[static_cast<size_t>(IdleCause::kHostSync)] = whole.idle_ns;
    out.idle_by_what["host synchronisation: cudaStreamSynchronize"] = whole.idle_ns;
    out.gaps.push_back(
        {out.begin_ns + 1000, 700000, IdleCause::kHostSync, "cudaStreamSynchronize", 0});
    out.kernels = {
        {"gemm_kernel", KernelClass::kMatmul, false, false, true, 96, 90000000, 1000, 2000000},
        {kHostileName, KernelClass::kOther, false, false, false, 3, 3000, 1000, 1000},
        {"ncclDevKernel_AllReduce", KernelClass::kOther, true, false, false, 12, 50000000, 1, 9}};
    out.operators = {{"aten::mm", "[[8, 8], [8, 8]]", 96, 900000, 500000, 90000000, 1e12, 1e9}};
    out.launch.kernels = 111, out.launch.delay_median_ns = 5000;
    out.matmul_ns = 100, out.tensor_core_ns = 90;
    add_memory(timeline, out);
    add_path(out);
    out.notes = {"FLOP/s are not known: the shapes of most operators were not recorded."};
    return out;
  }

  // Rank 2's steps are the longest; half of each is the loader's.
  static void add_path(RankFacts& out) {
    PathFacts& path = out.critical_path;
    path.begin_ns = out.begin_ns, path.end_ns = out.begin_ns + (out.rank == 2 ? 90 : 80) * 1000000;
    path.steps = 2, path.first_step = 0, path.last_step = 1;
    path.part_ns[static_cast<size_t>(PathPart::kDataLoading)] = path.span_ns() / 2;
    path.part_ns[static_cast<size_t>(PathPart::kCompute)] = path.span_ns() / 2;
    path.what_if = {{Change::kInstantData, KernelClass::kOther, path.span_ns() / 2, ""},
                    {Change::kFasterClass, KernelClass::kMatmul, path.span_ns() * 3 / 4, ""},
                    {Change::kNoWaiting, KernelClass::kOther, -1, "not matched"}};
    path.inferred = {"the host's threads are taken as one row of calls"};
  }

  static void add_memory(const RankTimeline& timeline, RankFacts& out) {
    MemoryFacts& memory = out.memory;
    memory.known = memory.category_known = true, memory.source = "ledger";
    for (const auto& sample : timeline.memory) {
      MemoryPoint point;
      point.time_ns = sample.time_ns, point.by_category = sample.bytes;
      for (const int64_t bytes : sample.bytes) point.allocated += bytes;
      point.reserved = point.allocated + (64 << 20);
      memory.curve.push_back(point);
      if (point.allocated <= memory.peak_allocated) continue;
      memory.peak_allocated = point.allocated, memory.peak_time_ns = point.time_ns;
      memory.peak_reserved = point.reserved, memory.at_peak = point;
    }
    memory.capacity = memory.peak_allocated * 5 / 4;
    memory.holders = {{"model.py:12 forward", "activations", 200 << 20}};
    memory.fragmentation = 64 << 20;
  }

  void add_communication() {
    for (size_t r = 0; r < job.ranks.size(); ++r) {
      RankFacts& rank = job.ranks[r];
      rank.groups = {{"0", "data", {0, 1, 2, 3}, 4}};
      CollectiveUse use;
      use.name = "all_reduce", use.group = 0, use.start_ns = rank.begin_ns + 2000000;
      use.duration_ns = 3000000, use.sequence = 1, use.bytes = 9000000, use.sent_bytes = 9000000;
      rank.collectives = {use};
      job.clocks.push_back({0, 1500, 12, "collectives end together"});
      RankWaits waits;
      waits.exposed_wait_ns = 4000000, waits.exposed_transfer_ns = 1000000;
      if (rank.rank != 2) waits.waited_for = {{2, 4000000}};
      job.waits.push_back(waits);
    }
    job.collective_kinds = {{"all_reduce",
                             "0",
                             {0, 1, 2, 3},
                             12,
                             1,
                             9000000,
                             50000000,
                             20000000,
                             12000000,
                             8000000,
                             9e10,
                             1.5e11,
                             "NVLink",
                             {{2, 11}, {0, 1}}}};
    MatchedCollective matched;
    matched.name = "all_reduce", matched.group = "0", matched.ranks = {0, 1, 2, 3};
    matched.bytes = 9000000, matched.step = 0, matched.whole = true, matched.transfer_ns = 1000000;
    const int64_t at = job.ranks[0].begin_ns + 2000000 + job.clocks[0].offset_ns;
    for (int32_t r = 0; r < 4; ++r) {
      matched.members.push_back({r, 0, at + r * 1000, at + 3000000, 3000 - r * 1000, 100});
    }
    job.collectives = {matched};
    job.layout.world_size = 4;
    job.layout.data = job.layout.pipeline = 2;
    job.layout.data_sharded = job.layout.known = true;
    job.layout.confidence = "likely";
    job.layout.reasons = {"groups are named so"};
    job.layout.groups = {{"data", "0", "data", {0, 1, 2, 3}, 12, 50000000, 9000000}};
    job.straggler = {
        {{2, 4, 4, 4000000, 0.001, "compute", "1.25 times the others' compute", {"gemm_kernel"}}},
        true,
        ""};
    job.outliers = {{1, 2, 9000000, "input", "the batch came 9 ms late"}};
  }

  void add_pipeline() {
    PipelineFacts pipeline;
    pipeline.stages = 2, pipeline.micro_batches = 4, pipeline.order = "gpipe";
    pipeline.ideal_bubble = 0.2, pipeline.measured_bubble = 0.31;
    const int64_t begin = job.ranks[0].begin_ns + job.clocks[0].offset_ns;
    for (int32_t stage = 0; stage < 2; ++stage) {
      pipeline.by_stage.push_back({stage,
                                   {2 * stage, 2 * stage + 1},
                                   20000000,
                                   13000000,
                                   6000000,
                                   4000000,
                                   2000000,
                                   500000,
                                   500000,
                                   0,
                                   1000000,
                                   2000000});
      for (int32_t micro = 0; micro < 4; ++micro) {
        const int64_t forward = begin + (micro + stage) * 1000000;
        pipeline.cells.push_back({stage, 2 * stage, micro, 0, true, forward, forward + 1000000});
        const int64_t backward = begin + 5000000 + (micro + 1 - stage) * 2000000;
        pipeline.cells.push_back({stage, 2 * stage, micro, 0, false, backward, backward + 2000000});
      }
    }
    job.pipeline = pipeline;
  }

  void add_topology() {
    Topology topology;
    topology.source = "topo.txt", topology.gpus = {"GPU0", "GPU1", "GPU2", "GPU3"};
    topology.nics = {"mlx5_0"};
    topology.links.assign(5, std::vector<Topology::Link>(5, {LinkKind::kSystem, 0}));
    for (size_t i = 0; i < 5; ++i) topology.links[i][i] = {LinkKind::kSelf, 0};
    for (const auto& [a, b] : {std::pair<size_t, size_t>{0, 1}, {2, 3}}) {
      topology.links[a][b] = topology.links[b][a] = {LinkKind::kNvlink, 4};
    }
    topology.numa_node = {0, 0, 1, 1};
    job.topologies = {topology};
  }

  void add_findings() {
    Finding finding;
    finding.rule = "straggler", finding.severity = Severity::kCritical, finding.ranks = {2};
    finding.title = "Rank 2 computes longer",
    finding.summary = "Others wait 4 ms a step for rank 2.";
    finding.cost_ns = 4000000, finding.share = 0.12, finding.confidence = 0.9;
    finding.cause = "more matrix products than elsewhere",
    finding.fix = {"Balance the work.", "Check the card."};
    finding.gain = "up to 12 % of the step";
    const StepFacts& step = job.ranks[2].steps[1];
    finding.evidence = {
        {"rank 2 computes 25 % longer", 2, 1, step.start_ns, step.start_ns + step.duration_ns}};
    Finding note;
    note.rule = "launch", note.severity = Severity::kNote, note.title = "Short kernels",
    note.summary = kHostileName;
    diagnosis.findings = {finding, note};
    diagnosis.abstained = {"hot_card: no counters of temperature"};
    diagnosis.verdict = "Rank 2 holds the others up: 12 % of the step.";
    job.warnings = {"rank 3's clock is not sure"};
  }
};

}  // namespace vitrine

// JobFacts and findings as JSON, section by section.
#include "report/analysis_json.h"

#include <algorithm>

#include "report/job_warnings.h"
#include "report/roofline.h"

namespace vitrine {

namespace {

constexpr int kVersion = 1;

template <typename Rows, typename ToJson>
Json list(const Rows& rows, size_t most, const ToJson& to_json) {
  Json out = Json::array();
  const size_t count = most == 0 ? rows.size() : std::min(most, rows.size());
  for (size_t i = 0; i < count; ++i) out.push_back(to_json(rows[i]));
  return out;
}

Json parts(const Breakdown& time) {
  return {{"span_ns", time.span_ns},
          {"compute_ns", time.compute_ns},
          {"exposed_comm_ns", time.exposed_communication_ns},
          {"exposed_mem_ns", time.exposed_copy_ns},
          {"idle_ns", time.idle_ns},
          {"comm_ns", time.communication_ns},
          {"overlap_comp_comm_ns", time.overlap_ns}};
}

Json phases(const std::array<int64_t, kPhases>& ns) {
  Json out = Json::object();
  for (int i = 0; i < kPhases; ++i) {
    out[std::string(phase_name(static_cast<Phase>(i))) + "_ns"] = ns[static_cast<size_t>(i)];
  }
  return out;
}

Json classes(const std::array<int64_t, kKernelClasses>& ns) {
  Json out = Json::object();
  for (int i = 0; i < kKernelClasses; ++i) {
    out[kernel_class_name(static_cast<KernelClass>(i))] = ns[static_cast<size_t>(i)];
  }
  return out;
}

Json causes(const IdleByCause& ns) {
  Json out = Json::object();
  for (int i = 0; i < kIdleCauses; ++i) {
    out[idle_cause_name(static_cast<IdleCause>(i))] = ns[static_cast<size_t>(i)];
  }
  return out;
}

// Numbers from 0 on; less means not known.
Json known(int64_t number) { return number >= 0 ? Json(number) : Json(nullptr); }
Json known_bytes(int64_t bytes) { return bytes > 0 ? Json(bytes) : Json(nullptr); }

Json step_json(const StepFacts& step) {
  Json out = parts(step.time);
  out["name"] = step.name;
  out["step"] = known(step.step);
  out["start_ns"] = step.start_ns;
  out["duration_ns"] = step.duration_ns;
  out["device"] = parts(step.device);
  out["device"]["begin_ns"] = step.device_begin_ns;
  out["device"]["end_ns"] = step.device_end_ns;
  out["phases"] = phases(step.phase_ns);
  out["kernel_classes_ns"] = classes(step.class_ns);
  out["idle_by_cause_ns"] = causes(step.idle_by_cause);
  out["idle_by_what_ns"] = step.idle_by_what;
  out["data_loading_ns"] = step.data_ns;
  out["host_sync_ns"] = step.sync_ns;
  out["allocator_ns"] = step.allocator_ns;
  out["allocator_calls"] = step.allocator_calls;
  out["copy_ns"] = step.copy_ns;
  out["kernels"] = step.kernels;
  out["collectives"] = step.collectives;
  out["recompute_ns"] = step.recompute_ns;
  return out;
}

Json launch_json(const LaunchFacts& launch) {
  return {{"launches", launch.launches},
          {"kernels", launch.kernels},
          {"delay_median_ns", launch.delay_median_ns},
          {"delay_p90_ns", launch.delay_p90_ns},
          {"short_kernels", launch.short_kernels},
          {"kernel_median_ns", launch.kernel_median_ns},
          {"launch_median_ns", launch.launch_median_ns},
          {"queue_mean", launch.queue_mean},
          {"queue_max", launch.queue_max},
          {"starved_share", launch.starved_share},
          {"graph_launches", launch.graph_launches},
          {"graph_kernels", launch.graph_kernels},
          {"before_launch", launch.before_launch}};
}

Json kernel_json(const KernelRow& row) {
  return {{"name", row.name},
          {"class",
           row.communication ? "communication"
           : row.copy        ? "copy"
                             : kernel_class_name(row.kind)},
          {"tensor_core", row.tensor_core},
          {"count", row.count},
          {"total_ns", row.total_ns},
          {"min_ns", row.min_ns},
          {"max_ns", row.max_ns}};
}

Json operator_json(const OperatorRow& row, const std::string& device) {
  Json out = {{"name", row.name},
              {"count", row.count},
              {"host_ns", row.host_ns},
              {"host_self_ns", row.host_self_ns},
              {"device_ns", row.device_ns}};
  if (!row.shapes.empty()) out["shapes"] = row.shapes;
  if (row.flops > 0) out["flops"] = row.flops;
  if (row.bytes > 0) out["bytes"] = row.bytes;
  if (const auto roof = roofline(row, device)) {
    out["bound"] = roof->compute_bound ? "compute" : "memory";
    out["of_bound"] = roof->share;
  }
  return out;
}

Json gap_json(const Gap& gap) {
  return {{"begin_ns", gap.begin_ns},
          {"duration_ns", gap.duration_ns},
          {"cause", idle_cause_name(gap.cause)},
          {"what", gap.what},
          {"step", known(gap.step)}};
}

Json path_json(const PathFacts& path) {
  if (!path.known()) return nullptr;
  Json parts = Json::object(), answers = Json::array();
  for (int i = 0; i < kPathParts; ++i) {
    parts[path_part_name(static_cast<PathPart>(i))] = path.part_ns[static_cast<size_t>(i)];
  }
  for (const WhatIf& one : path.what_if) {
    const bool known = one.span_ns >= 0;
    Json answer = {{"change", what_if_name(one)},
                   {"step_ns", known ? Json(path.per_step(one.span_ns)) : Json(nullptr)},
                   {"speed_up", nullptr}};
    if (one.span_ns > 0) {
      answer["speed_up"] = static_cast<double>(path.span_ns()) / static_cast<double>(one.span_ns);
    }
    if (!known) answer["unknown"] = one.unknown;
    answers.push_back(std::move(answer));
  }
  return {{"begin_ns", path.begin_ns},
          {"end_ns", path.end_ns},
          {"first_step", path.first_step >= 0 ? Json(path.first_step) : Json(nullptr)},
          {"last_step", path.last_step >= 0 ? Json(path.last_step) : Json(nullptr)},
          {"steps", path.steps},
          {"step_ns", path.per_step(path.span_ns())},
          {"parts_ns", std::move(parts)},
          {"kernel_classes_ns", classes(path.class_ns)},
          {"what_if", std::move(answers)},
          {"inferred", path.inferred}};
}

Json holder_json(const MemoryHolder& holder) {
  return {{"what", holder.what}, {"category", holder.category}, {"bytes", holder.bytes}};
}

Json by_category(const MemoryPoint& point) {
  Json out = Json::object();
  for (int c = 0; c < kMemoryCategories; ++c) {
    out[memory_category_name(static_cast<MemoryCategory>(c))] =
        point.by_category[static_cast<size_t>(c)];
  }
  out["unknown"] = point.unknown;
  return out;
}

Json memory_json(const MemoryFacts& memory) {
  if (!memory.known && memory.notes.empty()) return nullptr;
  if (!memory.known) return {{"source", memory.source}, {"notes", memory.notes}};
  Json out = {{"source", memory.source},
              {"peak_allocated_bytes", memory.peak_allocated},
              {"peak_time_ns", memory.peak_time_ns},
              {"fragmentation_bytes", memory.fragmentation},
              {"largest_free_block_bytes", memory.largest_free_block},
              {"allocator_retries", memory.retries},
              {"out_of_memory", memory.out_of_memory},
              {"starts_mid_run", memory.starts_mid_run},
              {"holders", list(memory.holders, 0, holder_json)},
              {"notes", memory.notes}};
  out["peak_reserved_bytes"] =
      memory.peak_reserved > 0 ? Json(memory.peak_reserved) : Json(nullptr);
  out["capacity_bytes"] = memory.capacity > 0 ? Json(memory.capacity) : Json(nullptr);
  out["at_peak_bytes"] = memory.category_known ? by_category(memory.at_peak) : Json(nullptr);
  return out;
}

Json clock_json(const RankClock& clock) {
  Json out = {{"offset_ns", clock.offset_ns}, {"samples", clock.samples}, {"method", clock.method}};
  out["uncertainty_ns"] = clock.uncertainty_ns >= 0 ? Json(clock.uncertainty_ns) : Json(nullptr);
  return out;
}

Json waits_json(const RankWaits& waits) {
  return {{"exposed_wait_ns", waits.exposed_wait_ns},
          {"exposed_transfer_ns", waits.exposed_transfer_ns},
          {"unmatched_ns", waits.unknown_ns},
          {"waited_for", list(waits.waited_for, 0, [](const auto& row) {
             return Json{{"rank", row.first}, {"ns", row.second}};
           })}};
}

Json counter_json(const CounterFacts& counter) {
  return {{"name", counter.name},
          {"samples", counter.samples},
          {"min", counter.min},
          {"mean", counter.mean},
          {"max", counter.max}};
}

Json collective_use_json(const RankFacts& rank, const CollectiveUse& use) {
  const bool grouped = use.group >= 0 && static_cast<size_t>(use.group) < rank.groups.size();
  return {{"name", use.name},
          {"group", grouped ? rank.groups[static_cast<size_t>(use.group)].name : ""},
          {"sequence", known(use.sequence)},
          {"step", known(use.step)},
          {"start_ns", use.start_ns},
          {"duration_ns", use.duration_ns},
          {"exposed_ns", use.exposed_ns},
          {"phase", phase_name(use.phase)},
          {"bytes", known_bytes(use.bytes)},
          {"peer", known(use.peer)}};
}

Json rank_json(const JobFacts& job, size_t index, size_t most) {
  const RankFacts& rank = job.ranks[index];
  Json out = {{"rank", rank.rank},
              {"source", rank.source},
              {"origin", rank.origin},
              {"device", rank.device},
              {"host", rank.host},
              {"device_work", rank.device_work},
              {"begin_ns", rank.begin_ns},
              {"wall_anchor_ns", rank.wall_anchor_ns},
              {"totals", parts(rank.total)},
              {"phases", phases(rank.phase_ns)},
              {"kernel_classes_ns", classes(rank.class_ns)},
              {"idle_by_cause_ns", causes(rank.idle_by_cause)},
              {"idle_by_what_ns", rank.idle_by_what},
              {"launch", launch_json(rank.launch)},
              {"critical_path", path_json(rank.critical_path)},
              {"tensor_core_ns", rank.tensor_core_ns},
              {"matmul_ns", rank.matmul_ns},
              {"recompute_ns", rank.recompute_ns},
              {"steps", list(rank.steps, 0, step_json)},
              {"longest_gaps", list(rank.gaps, most, gap_json)},
              {"kernels", list(rank.kernels, most, kernel_json)},
              {"operators",
               list(rank.operators,
                    most,
                    [&](const OperatorRow& row) { return operator_json(row, rank.device); })},
              {"collectives",
               list(rank.collectives,
                    most,
                    [&](const CollectiveUse& use) { return collective_use_json(rank, use); })},
              {"memory", memory_json(rank.memory)},
              {"counters", list(rank.counters, 0, counter_json)},
              {"profiler_ns", rank.profiler_ns},
              {"notes", rank.notes}};
  out["flops"] = rank.flops > 0 ? Json(rank.flops) : Json(nullptr);
  out["utilisation"] = nullptr;
  if (const auto used = utilisation(rank)) {
    out["utilisation"] = {{"share", used->share()},
                          {"flops_per_s", used->flops_per_s},
                          {"peak_flops_per_s", used->peak_flops_per_s},
                          {"peak", used->peak},
                          {"covered", used->covered}};
  }
  if (index < job.clocks.size()) out["clock"] = clock_json(job.clocks[index]);
  if (index < job.waits.size()) out["waits"] = waits_json(job.waits[index]);
  return out;
}

Json layout_json(const LayoutFacts& layout) {
  return {{"world_size", layout.world_size},
          {"data", layout.data},
          {"tensor", layout.tensor},
          {"pipeline", layout.pipeline},
          {"expert", layout.expert},
          {"context", layout.context},
          {"data_sharded", layout.data_sharded},
          {"sharded_alone", layout.sharded_alone},
          {"known", layout.known},
          {"confidence", layout.confidence},
          {"reasons", layout.reasons},
          {"groups", list(layout.groups, 0, [](const LayoutFacts::Group& group) {
             return Json{{"role", group.role},
                         {"name", group.name},
                         {"description", group.description},
                         {"ranks", group.ranks},
                         {"uses", group.uses},
                         {"total_ns", group.total_ns},
                         {"bytes", group.bytes}};
           })}};
}

Json known_rate(double bytes_per_s) { return bytes_per_s > 0 ? Json(bytes_per_s) : Json(nullptr); }

Json matched_json(const JobFacts& job, const MatchedCollective& collective) {
  Json members = Json::array();
  for (const auto& member : collective.members) {
    members.push_back({{"rank", job.ranks[static_cast<size_t>(member.rank_index)].rank},
                       {"start_ns", member.start_ns},
                       {"end_ns", member.end_ns},
                       {"wait_ns", member.wait_ns},
                       {"exposed_wait_ns", member.exposed_wait_ns}});
  }
  return {{"name", collective.name},
          {"group", collective.group},
          {"sequence", known(collective.sequence)},
          {"step", known(collective.step)},
          {"bytes", known_bytes(collective.bytes)},
          {"whole", collective.whole},
          {"transfer_ns", collective.transfer_ns},
          {"arrival_skew_ns", collective.arrival_skew_ns},
          {"end_skew_ns", collective.end_skew_ns},
          {"latest_rank",
           collective.members.empty()
               ? Json(nullptr)
               : Json(job.ranks[static_cast<size_t>(collective.members.back().rank_index)].rank)},
          {"algorithm_bytes_per_s", known_rate(collective.algorithm_bytes_per_s)},
          {"bus_bytes_per_s", known_rate(collective.bus_bytes_per_s)},
          {"arrivals", std::move(members)}};
}

Json kind_json(const CollectiveKind& kind) {
  return {{"name", kind.name},
          {"group", kind.group},
          {"ranks", kind.ranks},
          {"count", kind.count},
          {"unmatched", kind.unmatched},
          {"bytes", known_bytes(kind.bytes)},
          {"total_ns", kind.total_ns},
          {"exposed_ns", kind.exposed_ns},
          {"wait_ns", kind.wait_ns},
          {"transfer_ns", kind.transfer_ns},
          {"bus_bytes_per_s", known_rate(kind.bus_bytes_per_s)},
          {"expected_bytes_per_s", known_rate(kind.expected_bytes_per_s)},
          {"expected_from", kind.expected_from},
          {"last_arrivals", list(kind.last_arrivals, 0, [](const auto& row) {
             return Json{{"rank", row.first}, {"times", row.second}};
           })}};
}

Json pipeline_json(const std::optional<PipelineFacts>& pipeline) {
  if (!pipeline) return nullptr;
  return {{"stages", pipeline->stages},
          {"micro_batches", pipeline->micro_batches},
          {"order", pipeline->order},
          {"ideal_bubble", pipeline->ideal_bubble},
          {"measured_bubble", pipeline->measured_bubble},
          {"by_stage",
           list(pipeline->by_stage,
                0,
                [](const PipelineStage& stage) {
                  return Json{{"stage", stage.stage},
                              {"ranks", stage.ranks},
                              {"step_ns", stage.step_ns},
                              {"compute_ns", stage.compute_ns},
                              {"bubble_ns", stage.bubble_ns},
                              {"schedule_ns", stage.schedule_ns},
                              {"waiting_ns", stage.waiting_ns},
                              {"host_bound_ns", stage.host_bound_ns},
                              {"transfer_ns", stage.transfer_ns},
                              {"forward_ns", stage.forward_ns},
                              {"backward_ns", stage.backward_ns}};
                })},
          {"notes", pipeline->notes}};
}

Json stragglers_json(const StragglerFacts& facts) {
  return {{"tested", facts.tested},
          {"note", facts.note},
          {"stragglers", list(facts.stragglers, 0, [](const Straggler& straggler) {
             return Json{{"rank", straggler.rank},
                         {"steps", straggler.steps},
                         {"of_steps", straggler.of_steps},
                         {"cost_ns", straggler.cost_ns},
                         {"p_value", straggler.p_value},
                         {"reason", straggler.reason},
                         {"evidence", straggler.evidence},
                         {"more", straggler.more}};
           })}};
}

Json outlier_json(const JobFacts& job, const OutlierStep& outlier) {
  const RankFacts& rank = job.ranks[static_cast<size_t>(outlier.rank_index)];
  return {{"rank", rank.rank},
          {"step", rank.steps[static_cast<size_t>(outlier.step_index)].name},
          {"excess_ns", outlier.excess_ns},
          {"cause", outlier.cause},
          {"evidence", outlier.evidence}};
}

Json topology_json(const Topology& topology) {
  return {{"source", topology.source},
          {"gpus", topology.gpus},
          {"nics", topology.nics},
          {"nvlink_islands", topology.nvlink_islands()}};
}

Json nccl_json(const NcclFacts& nccl) {
  std::map<std::string, int64_t> transports;
  for (const auto& channel : nccl.channels) ++transports[channel.transport];
  return {{"source", nccl.source},
          {"version", nccl.version},
          {"hosts", nccl.hosts},
          {"network", nccl.network},
          {"network_devices", nccl.network_devices},
          {"channels_by_transport", transports},
          {"environment", nccl.environment},
          {"problems", nccl.problems}};
}

Json finding_json(const Finding& finding) {
  return {{"rule", finding.rule},
          {"severity", severity_name(finding.severity)},
          {"ranks", finding.ranks},
          {"steps", finding.steps},
          {"cost_ns", finding.cost_ns},
          {"share", finding.share},
          {"confidence", finding.confidence},
          {"title", finding.title},
          {"summary", finding.summary},
          {"cause", finding.cause},
          {"evidence",
           list(finding.evidence,
                0,
                [](const Evidence& evidence) {
                  return Json{{"text", evidence.text},
                              {"rank", known(evidence.rank)},
                              {"step", known(evidence.step)},
                              {"begin_ns", evidence.begin_ns},
                              {"end_ns", evidence.end_ns}};
                })},
          {"fix", finding.fix},
          {"gain", finding.gain}};
}

}  // namespace

Json analysis_json(const JobFacts& job,
                   const Diagnosis& diagnosis,
                   const AnalysisJsonOptions& options) {
  Json ranks = Json::array();
  for (size_t i = 0; i < job.ranks.size(); ++i) {
    ranks.push_back(rank_json(job, i, options.max_rows));
  }
  const auto matched = [&](const MatchedCollective& one) { return matched_json(job, one); };
  const auto outlier = [&](const OutlierStep& one) { return outlier_json(job, one); };
  return {{"format", "vitrine analysis"},
          {"version", kVersion},
          {"world_size", job.world_size},
          {"ranks", std::move(ranks)},
          {"layout", layout_json(job.layout)},
          {"collectives", list(job.collectives, options.max_rows, matched)},
          {"collective_kinds", list(job.collective_kinds, 0, kind_json)},
          {"pipeline", pipeline_json(job.pipeline)},
          {"straggler", stragglers_json(job.straggler)},
          {"outlier_steps", list(job.outliers, 0, outlier)},
          {"topologies", list(job.topologies, 0, topology_json)},
          {"nccl", list(job.nccl, 0, nccl_json)},
          {"loose_memory", list(job.loose_memory, 0, memory_json)},
          {"per_step", diagnosis.per_step},
          {"findings", list(diagnosis.findings, 0, finding_json)},
          {"abstained", diagnosis.abstained},
          {"verdict", diagnosis.verdict},
          {"warnings", job_warnings(job)}};
}

}  // namespace vitrine

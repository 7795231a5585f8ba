// The plan of a run on the engine's CPU ranks.
#include "plan/engine_plan.h"

#include <algorithm>
#include <memory>
#include <set>

#include "core/error.h"
#include "core/format.h"
#include "core/json.h"
#include "models/registry.h"
#include "plan/engine_timeline.h"
#include "schedule/edge_uses.h"
#include "schedule/fp8_linears.h"

namespace vitrine {
namespace {

struct Compiled {
  BuiltModel built;
  ParameterTable table;
  Graph graph;
};

std::unique_ptr<Compiled> compile(const RunConfig& config, int64_t unroll) {
  BuildOptions build;
  build.micro_batch = config.strategy.micro_batch;
  build.fp8 = fp8_linears(config.fp8, config.strategy);
  build.rollout_steps = unroll;
  auto compiled = std::make_unique<Compiled>();
  compiled->built = build_model(parse_json(config.model, "model"), build);
  compiled->table = make_parameter_table(compiled->built.model, config.strategy);
  compiled->graph =
      compile_graph(compiled->built.model, compiled->table, compiled->built.batch, config.strategy);
  return compiled;
}

// Each phase of a run keeps its own scratch once it was used.
int64_t other_scratch_bytes(const RunConfig& config,
                            const std::set<int64_t>& unrolls,
                            const std::vector<int>& blocks) {
  int64_t bytes = 0;
  for (const int64_t unroll : unrolls) {
    if (unroll == *unrolls.rbegin()) continue;
    const auto compiled = compile(config, unroll);
    std::vector<int> own;
    for (const int block : blocks) {
      if (block < static_cast<int>(compiled->graph.blocks.size())) own.push_back(block);
    }
    bytes += scratch_bytes(compiled->graph, own, true);
  }
  return bytes;
}

void add_scratch(EngineMemory& memory, int64_t bytes) {
  const auto workspace = static_cast<size_t>(MemoryCategory::kWorkspace);
  for (MemoryByCategory* each : {&memory.between_steps, &memory.peak, &memory.at_peak})
    (*each)[workspace] += bytes;
  for (MemoryByCategory& each : memory.curve) each[workspace] += bytes;
  memory.peak_bytes += bytes;
}

Json memory_json(const MemoryByCategory& bytes) {
  Json json = Json::object();
  for (size_t c = 0; c < bytes.size(); ++c) {
    if (bytes[c] != 0) json[memory_category_name(static_cast<MemoryCategory>(c))] = bytes[c];
  }
  return json;
}

Json parts_json(const EngineStepParts& parts) {
  return {{"forward_ns", parts.forward_ns},
          {"recompute_ns", parts.recompute_ns},
          {"backward_ns", parts.backward_ns},
          {"optimizer_ns", parts.optimizer_ns},
          {"exposed_communication_ns", parts.communication_ns}};
}

}  // namespace

int EnginePlan::fullest_rank() const {
  const auto fullest =
      std::max_element(by_rank.begin(), by_rank.end(), [](const auto& a, const auto& b) {
        return a.memory.peak_bytes < b.memory.peak_bytes;
      });
  return fullest == by_rank.end() ? 0 : fullest->rank;
}

EnginePlan plan_engine(const RunConfig& config, int ranks, const MeasuredMachine* profile) {
  const Strategy& strategy = config.strategy;
  if (strategy.mesh.world() != ranks) {
    throw ConfigError("the run file was resolved for " + std::to_string(strategy.mesh.world()) +
                      " ranks, the plan is asked for " + std::to_string(ranks));
  }
  std::set<int64_t> unrolls;
  for (const RolloutPhase& phase : config.train.rollout) unrolls.insert(phase.steps);
  if (unrolls.empty()) unrolls.insert(0);
  const auto compiled = compile(config, *unrolls.rbegin());
  const Graph& graph = compiled->graph;

  EnginePlan plan;
  plan.description = compiled->built.model.description;
  plan.unit = compiled->built.model.unit;
  plan.ranks = ranks;
  plan.parameters = compiled->table.total_elements;
  plan.global_batch = strategy.global_batch();
  plan.timeline.origin = "predicted";
  if (unrolls.size() > 1) {
    plan.notes.push_back("the step of the longest unroll (" + std::to_string(*unrolls.rbegin()) +
                         " steps) is planned");
  }
  plan.notes.push_back("memory of data loading and of evaluation is left out");
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < ranks; ++rank)
    schedules.push_back(build_schedule(graph, strategy, rank));
  EngineStepTime time;
  if (profile) {
    const MeasuredCosts costs(*profile, strategy.compute_dtype, ranks);
    time = simulate_engine(graph, strategy, schedules, costs);
    plan.threads = costs.threads();
    plan.step_ns = time.step_ns;
    plan.units_per_s = static_cast<double>(plan.global_batch) *
                       compiled->built.model.units_per_sample / time.step_ns * 1e9;
    plan.notes.push_back("the next batch is there when it is asked for");
    plan.notes.insert(plan.notes.end(), costs.notes().begin(), costs.notes().end());
  } else {
    plan.notes.push_back("without a profile there are no times (vitrine calibrate makes one)");
  }
  for (int rank = 0; rank < ranks; ++rank) {
    const auto r = static_cast<size_t>(rank);
    const Schedule& schedule = schedules[r];
    EnginePlanRank row;
    row.rank = rank;
    const int64_t other_scratch = other_scratch_bytes(config, unrolls, schedule.blocks);
    const auto in_order = [&](const std::vector<ActionMoment>& order) {
      EngineMemory memory = engine_memory(graph, strategy, schedule, order);
      add_scratch(memory, other_scratch);
      row.most_bytes = std::max(row.most_bytes, memory.peak_bytes);
      return memory;
    };
    const EngineMemory prompt = in_order(prompt_order(schedule));
    row.memory = in_order(late_order(schedule));
    MemoryByCategory highest{}, lowest{};
    for (size_t c = 0; c < highest.size(); ++c) {
      highest[c] = std::max(prompt.peak[c], row.memory.peak[c]);
      lowest[c] = std::min(prompt.peak[c], row.memory.peak[c]);
    }
    if (prompt.peak_bytes > row.memory.peak_bytes) row.memory = prompt;
    row.memory.peak = highest;
    row.least = lowest;
    row.peak_moment =
        row.memory.peak_action < 0
            ? "between steps"
            : action_words(schedule.actions[static_cast<size_t>(row.memory.peak_action)], graph);
    row.traffic = schedule.traffic();
    if (profile) {
      row.step_ns = time.ranks[r].end_ns;
      row.parts = time.ranks[r].parts;
      plan.timeline.ranks.push_back(
          engine_timeline(graph, strategy, schedule, time.ranks[r], row.memory, plan.description));
    }
    plan.by_rank.push_back(std::move(row));
  }
  return plan;
}

Json engine_plan_json(const EnginePlan& plan) {
  Json rows = Json::array();
  for (const EnginePlanRank& row : plan.by_rank) {
    Json json{{"rank", row.rank},
              {"memory_bytes",
               {{"peak", row.memory.peak_bytes},
                {"most", row.most_bytes},
                {"moment", row.peak_moment},
                {"at_peak", memory_json(row.memory.at_peak)},
                {"by_category", memory_json(row.memory.peak)},
                {"by_category_at_least", memory_json(row.least)},
                {"between_steps", memory_json(row.memory.between_steps)}}},
              {"sent_bytes_per_step",
               {{"gather", row.traffic.gather_bytes},
                {"reduce", row.traffic.reduce_bytes},
                {"publish", row.traffic.publish_bytes},
                {"pipeline", row.traffic.pipeline_bytes},
                {"control", row.traffic.control_bytes}}}};
    if (plan.step_ns > 0) {
      json["step_ns"] = row.step_ns;
      json["parts"] = parts_json(row.parts);
    }
    rows.push_back(std::move(json));
  }
  Json json{{"model", plan.description},
            {"parameters", plan.parameters},
            {"ranks", plan.ranks},
            {"global_batch", plan.global_batch}};
  if (plan.step_ns > 0) {
    json["threads_per_rank"] = plan.threads;
    json["step_ns"] = plan.step_ns;
    json[plan.unit + "_per_s"] = plan.units_per_s;
  }
  json["by_rank"] = rows;
  json["notes"] = plan.notes;
  return json;
}

std::string engine_plan_text(const EnginePlan& plan) {
  const EnginePlanRank& full = plan.by_rank[static_cast<size_t>(plan.fullest_rank())];
  std::string text = format("%s: %s parameters, %d rank%s, global batch %lld\n",
                            plan.description.c_str(),
                            format_count(static_cast<double>(plan.parameters)).c_str(),
                            plan.ranks,
                            plan.ranks == 1 ? "" : "s",
                            static_cast<long long>(plan.global_batch));
  text += format(
      "memory of rank %d, the fullest, at its peak in %s:\n", full.rank, full.peak_moment.c_str());
  for (size_t c = 0; c < full.memory.at_peak.size(); ++c) {
    if (full.memory.at_peak[c] == 0) continue;
    text += format("  %-14s %10s\n",
                   memory_category_name(static_cast<MemoryCategory>(c)),
                   format_bytes(static_cast<double>(full.memory.at_peak[c])).c_str());
  }
  text += format(
      "  %-14s %10s\n", "all", format_bytes(static_cast<double>(full.memory.peak_bytes)).c_str());
  if (full.most_bytes > full.memory.peak_bytes) {
    text += format("  %-14s %10s in another order of communication\n",
                   "at most",
                   format_bytes(static_cast<double>(full.most_bytes)).c_str());
  }
  if (plan.step_ns > 0) {
    text += format("a step: %s, %s %s/s, %d thread%s a rank\n",
                   format_ns(plan.step_ns).c_str(),
                   format_count(plan.units_per_s).c_str(),
                   plan.unit.c_str(),
                   plan.threads,
                   plan.threads == 1 ? "" : "s");
    const auto slowest = std::max_element(plan.by_rank.begin(),
                                          plan.by_rank.end(),
                                          [](auto& a, auto& b) { return a.step_ns < b.step_ns; });
    for (const auto& [name, ns] : {std::pair("forward", slowest->parts.forward_ns),
                                   {"recomputation", slowest->parts.recompute_ns},
                                   {"backward", slowest->parts.backward_ns},
                                   {"optimizer", slowest->parts.optimizer_ns},
                                   {"communication", slowest->parts.communication_ns}}) {
      if (ns <= 0) continue;
      text += format(
          "  %-14s %10s  %5.1f %%\n", name, format_ns(ns).c_str(), ns / slowest->step_ns * 100);
    }
  }
  text += format("a rank sends %s a step\n",
                 format_bytes(static_cast<double>(full.traffic.total())).c_str());
  for (const std::string& note : plan.notes) text += "note: " + note + "\n";
  return text;
}

}  // namespace vitrine

// vitrine explain: what a run file means, before it runs.
#include <cstdio>
#include <memory>

#include "cli/commands.h"
#include "config/deepspeed.h"
#include "config/run_config.h"
#include "core/error.h"
#include "core/format.h"
#include "core/json.h"
#include "models/registry.h"
#include "plan/engine_memory.h"
#include "schedule/fp8_linears.h"
#include "schedule/memory.h"

namespace vitrine {
namespace {

Json memory_json(const MemoryByCategory& bytes) {
  Json json = Json::object();
  for (size_t c = 0; c < kMemoryCategories; ++c) {
    if (bytes[c]) json[memory_category_name(static_cast<MemoryCategory>(c))] = bytes[c];
  }
  return json;
}

void print_memory(const char* title, const MemoryByCategory& bytes) {
  int64_t total = 0;
  std::printf("%s\n", title);
  for (size_t c = 0; c < kMemoryCategories; ++c) {
    total += bytes[c];
    if (bytes[c]) {
      std::printf("  %-14s %10s\n",
                  memory_category_name(static_cast<MemoryCategory>(c)),
                  format_bytes(static_cast<double>(bytes[c])).c_str());
    }
  }
  std::printf("  %-14s %10s\n", "all", format_bytes(static_cast<double>(total)).c_str());
}

std::string peak_words(const EngineMemory& memory, const Schedule& schedule, const Graph& graph) {
  if (memory.peak_action < 0) return "all of it";
  return action_words(schedule.actions[static_cast<size_t>(memory.peak_action)], graph);
}

Json peak_json(const EngineMemory& memory, const Schedule& schedule, const Graph& graph) {
  return {{"total", memory.peak_bytes},
          {"action", peak_words(memory, schedule, graph)},
          {"at_peak", memory_json(memory.at_peak)},
          {"by_category", memory_json(memory.peak)}};
}

// A DeepSpeed configuration alone: an answer for every key.
int explain_deepspeed(const Json& file, int ranks, bool json) {
  const std::vector<Remark> remarks = check_deepspeed(file, ranks);
  bool wrong = false;
  Json rows = Json::array();
  for (const Remark& remark : remarks) {
    wrong = wrong || remark.status == Remark::Status::kWrong;
    rows.push_back({{"status", remark_status_name(remark.status)},
                    {"key", remark.key},
                    {"note", remark.note}});
    if (!json) {
      std::printf("%-8s %s%s%s\n",
                  remark_status_name(remark.status),
                  remark.key.c_str(),
                  remark.note.empty() ? "" : ": ",
                  remark.note.c_str());
    }
  }
  if (json) std::printf("%s\n", Json{{"keys", rows}}.dump().c_str());
  return wrong ? 1 : 0;
}

int explain(
    const std::string& path, int ranks, int rank, const std::vector<std::string>& sets, bool json) {
  const Json file = read_json_file(path);
  if (!file.contains("model")) return explain_deepspeed(file, ranks, json);
  ConfigOptions options;
  options.world = ranks;
  options.overrides = sets;
  const RunConfig config = read_run_config(path, options);
  if (rank < 0 || rank >= config.strategy.mesh.world()) {
    throw UsageError("--rank " + std::to_string(rank) + ": there are ranks 0 to " +
                     std::to_string(config.strategy.mesh.world() - 1));
  }
  BuildOptions build;
  build.micro_batch = config.strategy.micro_batch;
  build.fp8 = fp8_linears(config.fp8, config.strategy);
  const BuiltModel built = build_model(parse_json(config.model, "model"), build);
  const ParameterTable table = make_parameter_table(built.model, config.strategy);
  const Graph graph = compile_graph(built.model, table, built.batch, config.strategy);
  const Schedule schedule = build_schedule(graph, config.strategy, rank);
  const MemoryByCategory state = model_state_bytes(table, config.strategy, schedule.blocks);
  const EngineMemory prompt =
      engine_memory(graph, config.strategy, schedule, prompt_order(schedule));
  const EngineMemory late = engine_memory(graph, config.strategy, schedule, late_order(schedule));
  if (json) {
    const TrafficCount traffic = schedule.traffic();
    std::printf("%s\n",
                Json{{"configuration", parse_json(resolved_json(config), "configuration")},
                     {"description", built.model.description},
                     {"parameters", table.total_elements},
                     {"trainable_parameters", table.trainable_elements},
                     {"memory_bytes",
                      {{"model_state", memory_json(state)},
                       {"step_peak", peak_json(prompt, schedule, graph)},
                       {"step_peak_late", peak_json(late, schedule, graph)}}},
                     {"sent_bytes_per_step",
                      {{"gather", traffic.gather_bytes},
                       {"reduce", traffic.reduce_bytes},
                       {"publish", traffic.publish_bytes},
                       {"pipeline", traffic.pipeline_bytes},
                       {"control", traffic.control_bytes}}},
                     {"schedule", parse_json(schedule_json(schedule, graph), "schedule")}}
                    .dump()
                    .c_str());
    return 0;
  }
  std::printf("%s\n\n", resolved_json(config).c_str());
  const std::string notes = remarks_text(config.remarks,
                                         {Remark::Status::kUsed,
                                          Remark::Status::kIgnored,
                                          Remark::Status::kNotYet,
                                          Remark::Status::kWrong});
  if (!notes.empty()) std::printf("DeepSpeed keys:\n%s\n", notes.c_str());
  std::printf("%s: %s parameters, %s trainable; global batch %lld\n\n",
              built.model.description.c_str(),
              format_count(static_cast<double>(table.total_elements)).c_str(),
              format_count(static_cast<double>(table.trainable_elements)).c_str(),
              static_cast<long long>(config.strategy.global_batch()));
  std::printf("One step of rank %d:\n%s\n", rank, describe_schedule(schedule, graph).c_str());
  print_memory("Memory of this rank between steps:", state);
  std::printf("At the peak of a step, in %s", peak_words(prompt, schedule, graph).c_str());
  print_memory(":", prompt.at_peak);
  if (late.peak_bytes > prompt.peak_bytes) {
    std::printf("Where communication lags behind as far as the schedule lets it: %s, in %s\n",
                format_bytes(static_cast<double>(late.peak_bytes)).c_str(),
                peak_words(late, schedule, graph).c_str());
  }
  return 0;
}

}  // namespace

void add_explain(CLI::App& app, CommandAction& action) {
  struct Arguments {
    std::string file;
    int ranks = 1, rank = 0;
    std::vector<std::string> sets;
    bool json = false;
  };
  auto a = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("explain",
                                         "Show the resolved configuration, the schedule of one "
                                         "step and memory by category; or answer a "
                                         "DeepSpeed configuration key by key");
  command->add_option("file", a->file, "Run file, or DeepSpeed configuration")->required();
  command->add_option("--ranks", a->ranks, "Ranks that there will be")->capture_default_str();
  command->add_option("--rank", a->rank, "Whose schedule")->capture_default_str();
  command->add_option("--set", a->sets, "Override one key (repeatable)");
  command->add_flag("--json", a->json);
  command->footer(
      "Example: vitrine explain examples/tiny_lm.json --ranks 4 --set zero_optimization.stage=3");
  command->callback([a, &action] {
    action = [a] { return explain(a->file, a->ranks, a->rank, a->sets, a->json); };
  });
}

}  // namespace vitrine

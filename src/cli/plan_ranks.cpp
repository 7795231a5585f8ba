// The plan of a run file on CPU ranks: what its options mean, and what is printed.
#include "cli/plan_ranks.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "config/run_config.h"
#include "core/error.h"
#include "core/format.h"
#include "core/json.h"
#include "machines/measured.h"
#include "plan/built_in_shapes.h"
#include "plan/engine_plan.h"
#include "timeline/chrome_writer.h"

namespace vitrine {
namespace {

constexpr const char* kUse =
    "--ranks plans a run file on CPU ranks of this machine, as in `vitrine plan "
    "examples/tiny_lm.json --ranks 2 --profile profile.json`";

void check_options(const PlanRanksOptions& o, const CLI::App& command) {
  const std::vector<std::string> known = {
      "model", "--ranks", "--set", "--profile", "--timeline", "--json", "--help"};
  std::vector<std::string> others;
  for (const CLI::Option* option : command.get_options()) {
    const std::string name = option->get_name();
    if (option->count() > 0 && std::find(known.begin(), known.end(), name) == known.end())
      others.push_back(name);
  }
  if (!others.empty()) {
    throw UsageError(join(others, ", ") + " cannot be with --ranks: " + kUse +
                     ", and the run file gives the strategy (--set overrides a key); for a "
                     "cluster give --gpus without --ranks");
  }
  if (o.ranks < 1) throw UsageError(format("--ranks %d: is at least 1", o.ranks));
  if (o.run_file.empty()) throw UsageError(std::string("a run file is required: ") + kUse);
  if (!std::filesystem::exists(o.run_file) && built_in_shape(o.run_file)) {
    throw UsageError(o.run_file + " is a model's name, not a run file: " + kUse +
                     "; for a named model give --gpus");
  }
  if (o.timeline.empty()) return;
  check_timeline_name(o.timeline);
  if (o.profile.empty()) {
    throw UsageError(
        "--timeline needs times, and with --ranks they come from a profile of this machine: give "
        "--profile FILE (vitrine calibrate makes one)");
  }
}

RunConfig read_run(const PlanRanksOptions& o) {
  const Json file = read_json_file(o.run_file);
  if (!file.is_object() || !file.contains("model")) {
    throw ConfigError(o.run_file + ": is not a run file, which has a \"model\" section: " + kUse +
                      "; for a Hugging Face config.json or a model section give --gpus");
  }
  ConfigOptions options;
  options.world = o.ranks;
  options.overrides = o.overrides;
  return read_run_config(o.run_file, options);
}

}  // namespace

void check_timeline_name(const std::string& path) {
  if (path.ends_with(".json") || path.ends_with(".json.gz")) return;
  throw UsageError("--timeline " + path + ": expected a name that ends in .json or .json.gz");
}

void write_timelines(const std::vector<RankTimeline>& timelines, const std::string& path) {
  check_timeline_name(path);
  const std::string end = path.ends_with(".gz") ? ".json.gz" : ".json";
  const std::string stem = path.substr(0, path.size() - end.size());
  for (const RankTimeline& timeline : timelines) {
    const std::string name =
        timelines.size() == 1 ? path : stem + ".rank" + std::to_string(timeline.rank) + end;
    write_chrome_trace(timeline, name);
    std::fprintf(stderr, "%s\n", name.c_str());
  }
}

int print_plan_of_ranks(const PlanRanksOptions& o, const CLI::App& command) {
  check_options(o, command);
  const RunConfig config = read_run(o);
  std::optional<MeasuredMachine> profile;
  if (!o.profile.empty()) profile = read_measured(o.profile);
  const EnginePlan plan = plan_engine(config, o.ranks, profile ? &*profile : nullptr);
  if (!o.timeline.empty()) write_timelines(plan.timeline.ranks, o.timeline);
  if (o.json) {
    Json out = {{"format", "vitrine plan ranks"}, {"version", 1}};
    out.update(engine_plan_json(plan));
    std::printf("%s\n", out.dump(1).c_str());
    return 0;
  }
  const std::string ignored =
      remarks_text(config.remarks, {Remark::Status::kIgnored, Remark::Status::kNotYet});
  std::fputs(ignored.c_str(), stderr);
  std::fputs(engine_plan_text(plan).c_str(), stdout);
  return 0;
}

}  // namespace vitrine

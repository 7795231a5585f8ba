// The run file: our sections, and all checks together.
#include <algorithm>
#include <filesystem>

#include "config/deepspeed.h"
#include "core/error.h"
#include "core/format.h"
#include "core/json.h"
#include "models/registry.h"

namespace vitrine {
namespace {

using Status = Remark::Status;
constexpr int64_t kMany = int64_t{1} << 40;

Mesh read_mesh(const Json& file, int world, PipelineOrder& order) {
  Mesh mesh;
  const Json empty = Json::object();
  const auto it = file.find("mesh");
  JsonReader in(it == file.end() ? empty : *it, "mesh");
  mesh.pipeline = static_cast<int>(in.integer("pipeline", 1, 1, 1 << 20));
  mesh.tensor = static_cast<int>(in.integer("tensor", 1, 1, 1 << 20));
  mesh.context = static_cast<int>(in.integer("context", 1, 1, 1 << 20));
  order = in.choice("pipeline_order", "1f1b", {"1f1b", "gpipe"}) == "gpipe" ? PipelineOrder::kGPipe
                                                                            : PipelineOrder::k1F1B;
  const int others = mesh.pipeline * mesh.tensor * mesh.context;
  const bool given = in.has("data");
  mesh.data = static_cast<int>(in.integer("data", world / others, given ? 1 : 0, 1 << 20));
  in.finish();
  if (mesh.world() != world) {
    throw ConfigError(
        format("mesh: data %d x pipeline %d x tensor %d x context %d = %d, but the run has "
               "%d ranks; start it with %d or change the mesh",
               mesh.data,
               mesh.pipeline,
               mesh.tensor,
               mesh.context,
               mesh.world(),
               world,
               std::max(mesh.world(), others)));
  }
  return mesh;
}

DataConfig read_data(const Json& section) {
  DataConfig data;
  JsonReader in(section, "data");
  if (!in.has("kind"))
    throw ConfigError("data.kind is missing; one of frames, tokens, balls, random");
  data.kind = in.choice("kind", "", {"frames", "tokens", "balls", "random"});
  if (data.kind != "random") {
    data.path = in.text("path", "");
    data.eval_path = in.text("eval_path", "");
    if (data.path.empty())
      throw ConfigError("data.path is missing: the folder of the " + data.kind);
  }
  if (data.kind == "frames" || data.kind == "balls")
    data.stride = in.integer("stride", 1, 1, kMany);
  data.workers = static_cast<int>(in.integer("workers", data.workers, 0, 1024));
  data.prefetch = static_cast<int>(in.integer("prefetch", data.prefetch, 1, 4096));
  if (data.kind == "balls") {
    data.balls = in.integer("balls", data.balls, 1, 64);
    data.episodes = in.integer("episodes", data.episodes, 1, kMany);
    data.eval_episodes = in.integer("eval_episodes", data.eval_episodes, 1, kMany);
    data.episode_frames = in.integer("episode_frames", data.episode_frames, 2, kMany);
  }
  in.finish();
  return data;
}

std::vector<RolloutPhase> read_rollout(const Json& list) {
  std::vector<RolloutPhase> phases;
  if (list.is_null()) return phases;
  if (!list.is_array() || list.empty()) {
    throw ConfigError(
        "train.rollout: expected a list such as [{\"until\": 0.7, \"steps\": 1}, "
        "{\"until\": 1.0, \"steps\": 3}], got " +
        list.dump());
  }
  double before = 0;
  for (size_t i = 0; i < list.size(); ++i) {
    JsonReader in(list[i], "train.rollout[" + std::to_string(i) + "]");
    RolloutPhase phase;
    phase.until = in.number("until", 1);
    phase.steps = in.integer("steps", 1, 1, 64);
    in.finish();
    if (phase.until <= before || phase.until > 1) {
      throw ConfigError(in.path_of("until") +
                        ": phases end one after the other, from over 0 up to 1; got " +
                        format("%g after %g", phase.until, before));
    }
    before = phase.until;
    phases.push_back(phase);
  }
  if (before != 1)
    throw ConfigError("train.rollout: the last phase ends at 1, got " + format("%g", before));
  return phases;
}

TraceConfig read_trace(const Json& section) {
  TraceConfig trace;
  JsonReader in(section, "train.trace");
  trace.skip_first = in.integer("skip_first", trace.skip_first, 0, kMany);
  trace.wait = in.integer("wait", trace.wait, 0, kMany);
  trace.warmup = in.integer("warmup", trace.warmup, 0, kMany);
  trace.active = in.integer("active", 3, 0, kMany);
  trace.repeat = in.integer("repeat", trace.repeat, 0, kMany);
  trace.operations = in.boolean("operations", trace.operations);
  in.finish();
  return trace;
}

bool read_schedule(JsonReader& in, LearningRateSchedule& schedule) {
  const bool given = in.has("schedule") || in.has("warmup_steps") || in.has("final_lr_ratio");
  const std::string shape = in.choice("schedule", "cosine", {"cosine", "linear", "constant"});
  schedule.shape = shape == "cosine"   ? LearningRateSchedule::Shape::kCosine
                   : shape == "linear" ? LearningRateSchedule::Shape::kLinear
                                       : LearningRateSchedule::Shape::kConstant;
  schedule.warmup_steps = in.integer("warmup_steps", schedule.warmup_steps, 0, kMany);
  schedule.final_ratio =
      in.number("final_lr_ratio", shape == "constant" ? 1 : schedule.final_ratio);
  if (schedule.final_ratio < 0 || schedule.final_ratio > 1) {
    throw ConfigError("train.final_lr_ratio: is from 0 to 1, got " +
                      format("%g", schedule.final_ratio));
  }
  return given;
}

TrainConfig read_train(const Json& section, const DeepSpeedSettings& settings) {
  TrainConfig train;
  JsonReader in(section, "train");
  train.steps = in.integer("steps", 0, 0, kMany);
  train.seconds = in.number("seconds", 0);
  if (train.seconds < 0 || (train.steps > 0) == (train.seconds > 0)) {
    throw ConfigError("train: give either steps or seconds (a time budget), over 0");
  }
  train.device = in.text("device", train.device);
  if (train.device == "cuda") train.device = "gpu";
  if (train.device != "cpu" && train.device != "gpu") {
    throw ConfigError("train.device: cpu or gpu, got \"" + train.device + "\"");
  }
  train.tf32 = in.boolean("tf32", train.tf32);
  train.deterministic = in.boolean("deterministic", train.deterministic);
  train.graphs = in.choice("graphs", train.graphs, {"auto", "off", "on"});
  train.seed = static_cast<uint64_t>(in.integer("seed", 0, 0, INT64_MAX));
  const bool own_schedule = read_schedule(in, train.schedule);
  if (settings.schedule && own_schedule) {
    throw ConfigError(
        "train.schedule, warmup_steps and final_lr_ratio say what the scheduler section says "
        "too; keep one of the two");
  }
  if (settings.schedule) train.schedule = *settings.schedule;
  if (train.schedule.total_steps == 0) train.schedule.total_steps = train.steps;
  if (settings.log_every && in.has("log_every")) {
    throw ConfigError(
        "train.log_every and steps_per_print are the same setting; keep one of the two");
  }
  train.log_every = in.integer("log_every", settings.log_every.value_or(train.log_every), 1, kMany);
  train.eval_every = in.integer("eval_every", train.eval_every, 0, kMany);
  train.eval_batches = in.integer("eval_batches", train.eval_batches, 1, kMany);
  train.timeout_seconds = in.number("timeout_seconds", train.timeout_seconds);
  if (train.timeout_seconds <= 0) throw ConfigError("train.timeout_seconds: is over 0");
  train.comms_log = settings.comms_log;
  if (const Json& checkpoint = in.raw("checkpoint"); !checkpoint.is_null()) {
    JsonReader inner(checkpoint, "train.checkpoint");
    train.checkpoint.every = inner.integer("every", train.checkpoint.every, 0, kMany);
    train.checkpoint.keep = inner.integer("keep", train.checkpoint.keep, 0, kMany);
    inner.finish();
  }
  if (const Json& trace = in.raw("trace"); !trace.is_null()) train.trace = read_trace(trace);
  train.rollout = read_rollout(in.raw("rollout"));
  in.finish();
  return train;
}

const Json& section(const Json& file, const char* key) {
  const auto it = file.find(key);
  if (it == file.end()) {
    throw ConfigError(
        std::string("the section \"") + key +
        "\" is missing: a run file has model, data and train beside DeepSpeed's keys "
        "(docs/formats/run_file.md). A DeepSpeed configuration alone can be checked with "
        "vitrine explain.");
  }
  return *it;
}

void refuse(const std::vector<Remark>& remarks, bool allow_not_yet) {
  const std::string wrong = remarks_text(remarks, {Status::kWrong});
  if (!wrong.empty()) {
    throw ConfigError("the configuration cannot be used:\n" +
                      wrong.substr(0, wrong.find_last_not_of('\n') + 1));
  }
  const std::string not_yet = remarks_text(remarks, {Status::kNotYet});
  if (!not_yet.empty() && !allow_not_yet) {
    throw ConfigError(
        "the configuration asks for what would change results or memory and is not "
        "available:\n" +
        not_yet + "Change these keys, or set \"allow_not_yet\": true to train without them.");
  }
}

void check_data_fits(const RunConfig& config) {
  const std::string& kind = config.data.kind;
  const bool fits = kind == "random" || (config.family == "decoder" && kind == "tokens") ||
                    (config.family == "world_model" && (kind == "frames" || kind == "balls"));
  if (fits) return;
  const char* wanted = config.family == "decoder" ? "tokens or random"
                       : config.family == "world_model"
                           ? "frames, balls or random"
                           : "random (labelled images have no format yet)";
  throw ConfigError("data.kind: a " + config.family + " takes " + wanted + ", got " + kind);
}

bool read_fp8(const Json& section, const Strategy& strategy) {
  if (section.is_null()) return false;
  JsonReader in(section, "fp8");
  const bool enabled = in.boolean("enabled", false);
  in.finish();
  if (enabled && strategy.compute_dtype != DType::kBF16) {
    throw ConfigError(
        "fp8.enabled: 8-bit products are part of a bf16 run; add \"bf16\": {\"enabled\": true}");
  }
  return enabled;
}

}  // namespace

const std::vector<std::string>& own_keys() {
  static const std::vector<std::string> keys = {
      "name", "model", "data", "train", "mesh", "frozen", "persistent", "fp8", "allow_not_yet"};
  return keys;
}

RunConfig make_run_config(const Json& file, const ConfigOptions& options) {
  Json resolved = file;
  apply_overrides(resolved, options.overrides);
  JsonReader top(resolved, "");
  RunConfig config;
  config.name = top.text("name", "");
  PipelineOrder order{};
  const Mesh mesh = read_mesh(resolved, options.world, order);
  const DeepSpeedSettings settings = read_deepspeed(resolved, mesh, own_keys(), config.remarks);
  refuse(config.remarks, top.boolean("allow_not_yet", false));
  config.strategy = settings.strategy;
  config.strategy.pipeline_order = order;
  config.optimizer = settings.optimizer;
  config.loss_scaler = settings.loss_scaler;
  const char* const names = "parameter names or beginnings ending in *";
  config.strategy.frozen = top.texts("frozen", names, {});
  config.strategy.persistent = top.texts("persistent", names, {});
  if (!config.strategy.persistent.empty() && !config.strategy.shard.parameters) {
    config.remarks.push_back({Remark::Status::kIgnored,
                              "persistent",
                              "only of stage 3, and this file has stage " +
                                  std::to_string(config.strategy.shard.stage())});
  }
  config.strategy.validate();
  config.fp8 = read_fp8(top.raw("fp8"), config.strategy);
  const BuiltModel built =
      build_model(section(resolved, "model"), {config.strategy.micro_batch, 0});
  config.model = built.resolved;
  config.family = built.family;
  config.data = read_data(section(resolved, "data"));
  check_data_fits(config);
  config.train = read_train(section(resolved, "train"), settings);
  if (!config.train.rollout.empty() && config.family != "world_model") {
    throw ConfigError("train.rollout is for world models; this is a " + config.family);
  }
  return config;
}

RunConfig read_run_config(const std::string& path, const ConfigOptions& options) {
  const Json file = read_json_file(path);
  try {
    RunConfig config = make_run_config(file, options);
    if (config.name.empty()) config.name = std::filesystem::path(path).stem().string();
    return config;
  } catch (const ConfigError& error) {
    throw ConfigError(path + ": " + error.what());
  } catch (const ShapeError& error) {
    throw ShapeError(path + ": " + error.what());
  }
}

int64_t rollout_steps_at(const TrainConfig& train, double progress) {
  for (const RolloutPhase& phase : train.rollout) {
    if (progress < phase.until) return phase.steps;
  }
  return train.rollout.empty() ? 0 : train.rollout.back().steps;
}

}  // namespace vitrine

// The training loop.
#include "train/trainer.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "checkpoint/checkpoint_writer.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/format.h"
#include "core/json.h"
#include "data/loader.h"
#include "metrics/metrics_writer.h"
#include "models/registry.h"
#include "ops/gpu/precision.h"
#include "schedule/fp8_linears.h"
#include "timeline/chrome_writer.h"
#include "train/datasets.h"
#include "train/gpu_counters.h"
#include "train/run_folder.h"

namespace vitrine {
namespace {

double seconds_since(int64_t ns) { return static_cast<double>(now_ns() - ns) * 1e-9; }

EngineOptions engine_options(const RunConfig& config) {
  EngineOptions options;
  if (config.train.device == "gpu") {
    gpu::set_deterministic(config.train.deterministic);
    gpu::set_tf32(config.train.tf32);
    options.execution = gpu_execution(rank_environment().gpu());
    options.execution.graphs = graphs_from_name(config.train.graphs);
  }
  options.strategy = config.strategy;
  options.optimizer = config.optimizer;
  options.schedule = config.train.schedule;
  options.scaler = config.loss_scaler;
  options.seed = config.train.seed;
  return options;
}

// The machine's number of the GPU that this process sees as `visible`.
int machine_gpu(int visible) {
  const char* list = std::getenv("CUDA_VISIBLE_DEVICES");
  if (!list) return visible;
  std::string text = list;
  for (int i = 0; i < visible; ++i) {
    const size_t comma = text.find(',');
    if (comma == std::string::npos) return visible;
    text.erase(0, comma + 1);
  }
  char* end = nullptr;
  const long index = std::strtol(text.c_str(), &end, 10);
  return end != text.c_str() && (*end == ',' || *end == 0) ? static_cast<int>(index) : visible;
}

// Sums over one logging interval.
struct Interval {
  int64_t steps = 0, comm_ns = 0, data_ns = 0, step_ns = 0, begin_ns = now_ns();
  double loss = 0;
  void add(const StepReport& report) {
    ++steps;
    comm_ns += report.output.exposed_comm_ns;
    data_ns += report.output.data_wait_ns;
    step_ns += report.output.duration_ns;
    loss += report.output.loss;
  }
  double share(int64_t ns) const {
    return step_ns > 0 ? static_cast<double>(ns) / static_cast<double>(step_ns) : 0;
  }
};

class Trainer {
 public:
  Trainer(const RunConfig& config, const TrainOptions& options)
      : config_(config),
        options_(options),
        rank_(options.world ? options.world->rank() : 0),
        ranks_(options.world ? options.world->size() : 1) {}

  TrainResult run() {
    if (rank_ == 0) check_run_folder(options_);
    set_up();
    const int64_t began = now_ns();
    if (engine_->steps_done() == 0) message(memory_message());
    Interval interval, whole;
    while (!finished()) {
      const StepReport report = one_step(began);
      interval.add(report);
      whole.add(report);
      agreed_progress_ = report.output.progress;
      if (report.step == 0 || result_.steps == 0) result_.first_loss = report.output.loss;
      ++result_.steps;
      log_step(report, interval, began);
      const int64_t done = engine_->steps_done();
      const int64_t every = config_.train.checkpoint.every;
      if (every > 0 && done % every == 0 && !finished()) save(began);
      if (config_.train.eval_every > 0 && done % config_.train.eval_every == 0 && !finished())
        evaluate(done);
    }
    conclude(whole, began);
    return result_;
  }

 private:
  void message(const std::string& text) {
    if (rank_ == 0 && options_.on_message && !text.empty()) options_.on_message(text);
  }

  std::string memory_message() {
    return "memory of this rank before the first step:\n" + engine_->ledger().table();
  }

  void set_up() {
    const Json section = parse_json(config_.model, "model");
    std::vector<int64_t> unrolls;  // distinct rollout lengths, the first phase's first
    for (const RolloutPhase& phase : config_.train.rollout) {
      if (std::find(unrolls.begin(), unrolls.end(), phase.steps) == unrolls.end()) {
        unrolls.push_back(phase.steps);
      }
    }
    if (unrolls.empty()) unrolls.push_back(0);
    BuildOptions build;
    build.micro_batch = config_.strategy.micro_batch;
    build.fp8 = fp8_linears(config_.fp8, config_.strategy);
    // The longest unrolling fixes the clip length, so that all phases read the same samples.
    build.rollout_steps = *std::max_element(unrolls.begin(), unrolls.end());
    BuiltModel longest = build_model(section, build);
    const BatchTypes batch = longest.batch;
    data_ = open_data(config_, longest, longest.clip_frames, options_.world);
    if (config_.train.trace.active > 0) {
      RecorderOptions recorder;
      recorder.skip_first = config_.train.trace.skip_first;
      recorder.wait = config_.train.trace.wait;
      recorder.warmup = config_.train.trace.warmup;
      recorder.active = config_.train.trace.active;
      recorder.repeat = config_.train.trace.repeat;
      recorder.operations = config_.train.trace.operations;
      recorder_ = std::make_unique<Recorder>(rank_, ranks_, recorder);
      if (config_.train.device == "gpu") {
        counters_ =
            std::make_unique<GpuCounters>(*recorder_, machine_gpu(rank_environment().gpu()));
      }
    }
    for (const int64_t unroll : unrolls) {
      build.rollout_steps = unroll;
      BuiltModel built = build_model(section, build);
      if (!engine_) {
        unit_ = built.model.unit;
        units_per_sample_ = built.model.units_per_sample;
        resolved_model_ = built.resolved;
        if (recorder_) recorder_->set_info("model", built.model.description);
        engine_ = initialize(std::move(built.model),
                             batch,
                             engine_options(config_),
                             options_.world,
                             recorder_.get());
        variant_of_[unroll] = 0;
      } else {
        variant_of_[unroll] = engine_->add_variant(std::move(built.model), batch);
      }
    }
    if (options_.resume) resume();
    const MeshPlace place = place_in_mesh(config_.strategy.mesh, rank_);
    LoaderOptions loader;
    loader.seed = config_.train.seed;
    loader.layout = {config_.strategy.micro_batch,
                     config_.strategy.accumulation,
                     place.data_index,
                     config_.strategy.mesh.data};
    loader.workers = config_.data.workers;
    loader.prefetch = static_cast<int>(config_.data.prefetch);
    loader.first_step = engine_->steps_done();
    loader_ = std::make_unique<BatchLoader>(*data_.train, loader, engine_->host_ledger());
    if (rank_ == 0) {
      // Only now: what is wrong with model or data leaves no run behind.
      prepare_run_folder(config_, options_, ranks_);
      MetricsOptions metrics;
      metrics.resumed_step = options_.resume ? engine_->steps_done() - 1 : -1;
      metrics_ = std::make_unique<MetricsWriter>(options_.run_folder, metrics);
    }
  }

  void resume() {
    const std::string folder = options_.run_folder + "/checkpoints";
    if (list_checkpoints(folder)
            .empty()) {  // a run that ended in its first save has left only pieces
      message("no checkpoint in " + folder + ": starting from the beginning");
      return;
    }
    const Json extra = parse_json(engine_->load(folder), "checkpoint");
    elapsed_before_ = extra.value("elapsed_seconds", 0.0);
    agreed_progress_ = extra.value("progress", 0.0);
    message(format("going on after step %lld", static_cast<long long>(engine_->steps_done())));
  }

  bool finished() const {
    if (config_.train.steps > 0) return engine_->steps_done() >= config_.train.steps;
    return agreed_progress_ >= 1;
  }

  // What this rank believes; everyone acts on rank 0's, which comes back with the step.
  double own_progress(int64_t began) const {
    if (config_.train.steps > 0) {
      return static_cast<double>(engine_->steps_done()) / static_cast<double>(config_.train.steps);
    }
    return std::min(1.0, (elapsed_before_ + seconds_since(began)) / config_.train.seconds);
  }

  StepReport one_step(int64_t began) {
    const double progress = config_.train.steps > 0 ? own_progress(began) : agreed_progress_;
    const int64_t unroll =
        config_.train.rollout.empty() ? 0 : rollout_steps_at(config_.train, progress);
    const int64_t step = engine_->steps_done();
    if (recorder_) recorder_->begin_step(step);
    std::shared_ptr<const Batch> batch;
    const StepReport report = engine_->train_step(
        [&](int micro) {
          const auto count = static_cast<int>(config_.strategy.accumulation);
          batch = loader_->next(step + micro / count, micro % count);
          BatchViews views;
          for (const FieldSpec& field : batch->fields())
            views.emplace_back(field.name, batch->view(field.name));
          return views;
        },
        variant_of_.at(unroll),
        progress,
        own_progress(began),
        /*next_too=*/step + 1 < config_.train.steps || config_.train.steps == 0);
    if (recorder_ && recorder_->end_step()) write_trace();
    return report;
  }

  void write_trace() {
    const std::string path =
        options_.run_folder + "/trace/rank" + std::to_string(rank_) +
        (result_.traces.empty() ? "" : "." + std::to_string(result_.traces.size())) + ".json.gz";
    RankTimeline timeline = recorder_->take();
    engine_->add_gpu_records(timeline);
    write_chrome_trace(timeline, path);
    result_.traces.push_back(path);
  }

  double units_a_step() const {
    return static_cast<double>(config_.strategy.global_batch()) * units_per_sample_;
  }

  void log_step(const StepReport& report, Interval& interval, int64_t began) {
    if (const std::string warning = watch_.observe(report.step, report.output.loss, report.lr);
        !warning.empty()) {
      message("warning: " + warning);
    }
    if (rank_ != 0) return;
    const double step_seconds = static_cast<double>(report.output.duration_ns) * 1e-9;
    metrics_->write(report.step,
                    {{"loss", report.output.loss},
                     {"lr", report.lr},
                     {"grad_norm", report.output.gradient_norm},
                     {"step_seconds", step_seconds},
                     {unit_ + "_per_s", units_a_step() / step_seconds},
                     {"comm_share",
                      static_cast<double>(report.output.exposed_comm_ns) /
                          static_cast<double>(report.output.duration_ns)},
                     {"data_wait_seconds", static_cast<double>(report.output.data_wait_ns) * 1e-9},
                     {"loss_scale", report.loss_scale},
                     {"skipped_steps", static_cast<double>(report.skipped_steps)}});
    if (report.skipped) {
      message(
          format("step %lld: gradients are not finite, the update was skipped (%lld so far, loss "
                 "scale %g)",
                 static_cast<long long>(report.step),
                 static_cast<long long>(report.skipped_steps),
                 report.loss_scale));
    }
    if ((report.step + 1) % std::max<int64_t>(1, config_.train.log_every) != 0 && !finished())
      return;
    ProgressLine line;
    line.step = report.step + 1;
    line.total_steps = config_.train.steps;
    line.progress = std::max(own_progress(began), finished() ? 1.0 : 0.0);
    line.loss = interval.loss / static_cast<double>(interval.steps);
    line.lr = report.lr;
    line.gradient_norm = report.output.gradient_norm;
    line.units_per_second =
        units_a_step() * static_cast<double>(interval.steps) / seconds_since(interval.begin_ns);
    line.comm_share = interval.share(interval.comm_ns);
    line.data_share = interval.share(interval.data_ns);
    line.seconds = elapsed_before_ + seconds_since(began);
    line.skipped_steps = report.skipped_steps;
    line.unit = unit_;
    result_.loss = line.loss;
    interval = {};
    if (options_.on_progress) options_.on_progress(line);
  }

  void save(int64_t began) {
    const Json extra{{"elapsed_seconds", elapsed_before_ + seconds_since(began)},
                     {"progress", agreed_progress_},
                     {"config", parse_json(resolved_json(config_), "run.json")}};
    engine_->save(options_.run_folder + "/checkpoints",
                  extra.dump(),
                  static_cast<int>(config_.train.checkpoint.keep));
  }

  std::optional<WorldEval> evaluate(int64_t step) {
    if (!data_.eval_cache) return {};
    WorldEvalOptions eval;
    eval.clips = config_.train.eval_batches * config_.strategy.micro_batch;
    eval.picture_folder =
        options_.run_folder + "/samples/" + format("step-%06lld", static_cast<long long>(step));
    const WorldModelConfig model =
        world_model_from_json(parse_json(resolved_model_, "model"), "model");
    const WorldEval result = evaluate_world(*engine_, model, *data_.eval_cache, eval);
    message(
        format("held-out clips: PSNR %.1f dB one step ahead (copying the last frame: %.1f, wrong "
               "actions: %.1f)",
               result.psnr,
               result.psnr_copy,
               result.psnr_shuffled));
    return result;
  }

  void conclude(const Interval& whole, int64_t began) {
    result_.seconds = elapsed_before_ + seconds_since(began);
    result_.skipped_steps = engine_->skipped_steps();
    if (whole.steps > 0) {
      result_.units_per_second =
          units_a_step() * static_cast<double>(whole.steps) / seconds_since(began);
      result_.comm_share = whole.share(whole.comm_ns);
      result_.data_share = whole.share(whole.data_ns);
      if (rank_ != 0) result_.loss = whole.loss / static_cast<double>(whole.steps);
    }
    result_.peak_bytes = engine_->ledger().peak();
    write_memory(options_.run_folder, rank_, engine_->ledger());
    save(began);
    result_.checkpoint = options_.run_folder + "/checkpoints";
    result_.world = evaluate(engine_->steps_done());
    if (rank_ == 0) write_result(options_.run_folder, result_);
    message(communication_hint(result_.comm_share, ranks_));
  }

  const RunConfig& config_;
  const TrainOptions& options_;
  int rank_, ranks_;
  RunData data_;
  std::unique_ptr<Recorder> recorder_;
  std::unique_ptr<GpuCounters> counters_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<BatchLoader> loader_;
  std::unique_ptr<MetricsWriter> metrics_;
  std::map<int64_t, int> variant_of_;
  std::string unit_, resolved_model_;
  double units_per_sample_ = 1, elapsed_before_ = 0, agreed_progress_ = 0;
  LossWatch watch_;
  TrainResult result_;
};

}  // namespace

TrainResult train(const RunConfig& config, const TrainOptions& options) {
  return Trainer(config, options).run();
}

std::string communication_hint(double share, int ranks) {
  if (ranks == 1) return "";
  const double percent = share * 100;
  const char* verdict = share > 0.3
                            ? "bad: over 30 % means that links or message sizes limit the run"
                        : share < 0.1 ? "good: under 10 % is what good links give"
                                      : "fair: between 10 and 30 %";
  return format("exposed communication is %.1f %% of the step (%s)", percent, verdict);
}

WorldEval evaluate_run(const std::string& run_folder, const WorldEvalOptions& options) {
  const RunConfig config = read_run_for_one_rank(run_folder);
  BuildOptions build;
  build.micro_batch = config.strategy.micro_batch;
  build.fp8 = fp8_linears(config.fp8, config.strategy);
  const BuiltModel probe = build_model(parse_json(config.model, "model"), build);
  if (probe.family != "world_model") {
    throw ConfigError(run_folder + " trained a " + probe.family + "; rollouts need a world model");
  }
  const RunData data = open_data(config, probe, probe.clip_frames, nullptr);
  if (!data.eval_cache) {
    throw ConfigError(run_folder + " has no held-out data: set data.eval_path in its run.json");
  }
  BuiltModel built = build_model(parse_json(config.model, "model"), build);
  const WorldModelConfig model =
      world_model_from_json(parse_json(built.resolved, "model"), "model");
  EngineOptions options_of_engine = engine_options(config);
  Engine engine(std::move(built.model), built.batch, options_of_engine, nullptr, nullptr);
  engine.load(run_folder + "/checkpoints", false);
  return evaluate_world(engine, model, *data.eval_cache, options);
}

}  // namespace vitrine

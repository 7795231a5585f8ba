// vitrine bench step and bench recorder: whole training steps of one process.
#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "analysis/rank_facts.h"
#include "cli/benches.h"
#include "cli/launch.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/format.h"
#include "core/json.h"
#include "core/parallel.h"
#include "core/philox.h"
#include "core/quantile.h"
#include "models/registry.h"
#include "run/engine.h"
#include "schedule/fp8_linears.h"
#include "timeline/chrome_writer.h"

namespace vitrine {
namespace {

// One fixed batch of random values.
struct FixedBatch {
  std::vector<Buffer> buffers;
  BatchViews views;
  FixedBatch(const BatchTypes& types, int64_t largest_id, MemoryLedger& ledger) {
    const Philox random(3, 0);
    for (const auto& [name, type] : types) {
      buffers.emplace_back(
          ledger, MemoryCategory::kStaging, name, static_cast<size_t>(type.bytes()));
      const TensorView view{buffers.back().data(), type.shape, type.dtype};
      for (int64_t i = 0; i < view.elements(); ++i) {
        const auto at = static_cast<uint64_t>(i);
        if (type.dtype == DType::kI32) {
          view.as<int32_t>()[i] =
              static_cast<int32_t>(random.below(static_cast<uint64_t>(largest_id), at));
        } else {
          view.as<float>()[i] = static_cast<float>(random.uniform(at));
        }
      }
      views.emplace_back(name, view);
    }
  }
};

struct Bench {
  BuiltModel built;
  int64_t micro_batch;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<FixedBatch> batch;
  double units = 0;

  Bench(const BenchOptions& options, Recorder* recorder, World* world = nullptr) {
    const bool decoder = options.model == "decoder";
    micro_batch = options.micro_batch > 0 ? options.micro_batch : 8;
    EngineOptions engine_options;
    if (options.device == "gpu") {
      engine_options.execution = gpu_execution(rank_environment().gpu());
      engine_options.execution.graphs = graphs_from_name(options.graphs);
    }
    Strategy& strategy = engine_options.strategy;
    strategy.micro_batch = micro_batch;
    strategy.accumulation = options.accumulation;
    strategy.mesh.data = world ? world->size() : 1;
    strategy.shard = Sharding::stage(static_cast<int>(options.stage));
    strategy.compute_dtype = dtype_from_name(options.dtype);
    strategy.gradient_dtype = dtype_from_name(options.gradient_dtype);
    strategy.master_dtype = strategy.moment_dtype = dtype_from_name(options.states);
    strategy.recompute = options.recompute;
    strategy.prefetch_elements = options.prefetch;
    strategy.persistent = options.persistent;
    strategy.max_live_elements = std::max(strategy.max_live_elements, 8 * options.prefetch);
    BuildOptions build;
    build.micro_batch = micro_batch;
    build.fp8 = fp8_linears(options.fp8, strategy);
    if (options.fp8 && dtype_from_name(options.dtype) != DType::kBF16) {
      throw UsageError("--fp8: 8-bit products are part of a bf16 step; add --dtype bf16");
    }
    Json section{{"family", decoder ? "decoder" : "world_model"}, {"size", options.size}};
    if (decoder && options.sequence > 0) section["sequence_length"] = options.sequence;
    if (decoder && options.loss_chunk_rows >= 0) {
      section["loss_chunk_rows"] = options.loss_chunk_rows;
    }
    built = build_model(section, build);
    const Json resolved = parse_json(built.resolved, "model");
    const int64_t ids =
        decoder ? resolved.value("vocab", int64_t{2}) : resolved.value("action_count", int64_t{2});
    units = built.model.units_per_sample * static_cast<double>(strategy.global_batch());
    engine = initialize(std::move(built.model), built.batch, engine_options, world, recorder);
    batch = std::make_unique<FixedBatch>(built.batch, ids, engine->host_ledger());
  }
  int64_t step(StepReport* report = nullptr) {
    const int64_t start = now_ns();
    const StepReport done = engine->train_step([&](int) { return batch->views; }, 0, 0, 0, true);
    if (report) *report = done;
    return now_ns() - start;
  }
};

double median(std::vector<double> values) { return quantile_between(std::move(values), 0.5); }

}  // namespace

namespace {

constexpr int kRecordedSteps = 3;

// How many block actions of all steps were issued one operation at a time, and how many as graphs.
Json graphs_json(const BenchOptions& options, const GraphCounts& counts) {
  Json json{{"mode", options.graphs},
            {"replayed", counts.replayed},
            {"issued", counts.issued},
            {"captured", counts.captured},
            {"refused", counts.refused}};
  if (counts.refused > 0) json["why_refused"] = counts.why_refused;
  return json;
}

// Of several ranks, rank r's file gets ".rank<r>" before its ending. What is returned sets the
// recorded steps by the device's own clock against the sum of their breakdown.
Json record_steps(Bench& bench, Recorder& recorder, std::string path, World* world) {
  if (world) {
    const size_t name = path.find_last_of('/') + 1;
    const size_t dot = std::min(path.find('.', name), path.size());
    path.insert(dot, ".rank" + std::to_string(world->rank()));
  }
  double device_ms = 0;
  for (int i = 0; i < 1 + kRecordedSteps; ++i) {  // the first warms the tracer up
    recorder.begin_step(bench.engine->steps_done());
    StepReport report;
    bench.step(&report);
    if (i > 0) device_ms += static_cast<double>(report.output.device_ns) * 1e-6;
    recorder.end_step();
  }
  RankTimeline timeline = recorder.take();
  bench.engine->add_gpu_records(timeline);
  write_chrome_trace(timeline, path);
  double parts_ms = 0;
  for (const StepFacts& step : measure_rank(timeline).steps) {
    const Breakdown& d = step.device;
    const int64_t sum = d.compute_ns + d.exposed_communication_ns + d.exposed_copy_ns + d.idle_ns;
    parts_ms += static_cast<double>(sum) * 1e-6;
  }
  return Json{{"steps", kRecordedSteps},
              {"device_ms", device_ms / kRecordedSteps},
              {"breakdown_ms", parts_ms / kRecordedSteps}};
}

int bench_rank(const BenchOptions& options, World* world) {
  RecorderOptions window;
  window.wait = 0;
  window.warmup = 1;
  window.active = kRecordedSteps;
  window.repeat = 1;
  window.operations = true;
  Recorder recorder(world ? world->rank() : 0, world ? world->size() : 1, window);
  Bench bench(options, options.trace.empty() ? nullptr : &recorder, world);
  StepReport report;
  std::vector<double> ms, device_ms;
  for (int i = 0; i < options.warmup + options.steps; ++i) {
    const auto taken = static_cast<double>(bench.step(&report)) * 1e-6;
    if (i < options.warmup) continue;
    ms.push_back(taken);
    device_ms.push_back(static_cast<double>(report.output.device_ns) * 1e-6);
  }
  const GraphCounts counts = bench.engine->graph_counts();
  Json recorded;
  if (!options.trace.empty()) recorded = record_steps(bench, recorder, options.trace, world);
  if (world && world->rank() != 0) return 0;
  const double middle = median(ms);
  const double least = *std::min_element(ms.begin(), ms.end());
  const auto reserved = static_cast<int64_t>(bench.engine->ledger().device().reserved_bytes());
  Json json{{"model", options.model},
            {"size", options.size},
            {"device", bench.engine->ledger().device().name()},
            {"ranks", world ? world->size() : 1},
            {"stage", options.stage},
            {"dtype", options.dtype},
            {"fp8", options.fp8},
            {"gradient_dtype", options.gradient_dtype},
            {"prefetch", options.prefetch},
            {"persistent", options.persistent},
            {"states", options.states},
            {"micro_batch", bench.micro_batch},
            {"accumulation", options.accumulation},
            {"threads", compute_threads()},
            {"steps", options.steps},
            {"median_ms", middle},
            {"minimum_ms", least},
            {"units_per_second", bench.units / middle * 1e3},
            {"loss", report.output.loss},
            {"gradient_norm", report.output.gradient_norm},
            {"peak_bytes", bench.engine->ledger().peak()},
            {"reserved_bytes", reserved}};
  if (!bench.engine->ledger().device().is_host()) {
    json["median_device_ms"] = median(device_ms);
    json["copy_engines"] = bench.engine->copy_engines();
    json["graphs"] = graphs_json(options, counts);
    if (!recorded.is_null()) json["recorded"] = recorded;
  }
  if (options.json) {
    std::printf("%s\n", json.dump().c_str());
  } else {
    std::printf(
        "%s %s, micro-batch %lld, %s: %.2f ms a step (median of %d; minimum %.2f), %.0f units/s, "
        "peak %s\n",
        options.model.c_str(),
        options.size.c_str(),
        static_cast<long long>(bench.micro_batch),
        bench.engine->ledger().device().name().c_str(),
        middle,
        options.steps,
        least,
        bench.units / middle * 1e3,
        format_bytes(static_cast<double>(bench.engine->ledger().peak())).c_str());
    if (counts.replayed + counts.issued > 0) {
      std::printf("block actions of all steps: %lld replayed as graphs, %lld issued\n",
                  static_cast<long long>(counts.replayed),
                  static_cast<long long>(counts.issued));
    }
  }
  return 0;
}

}  // namespace

int bench_step(const BenchOptions& options, const CommandLine& line) {
  return run_ranks(world_size(options.ranks),
                   line,
                   std::filesystem::temp_directory_path() / "vitrine-bench",
                   300,
                   options.device,
                   [&](World* world) { return bench_rank(options, world); });
}

int bench_recorder(const BenchOptions& options) {
  RecorderOptions recorder_options;
  recorder_options.active = 0;
  Recorder recorder(0, 1, recorder_options);
  Bench bench(options, &recorder);
  for (int i = 0; i < 5; ++i) bench.step();
  // A GPU's tracer is started and stopped with the window, which is long enough for that not to
  // count; on the host every step is a window.
  const bool host = bench.engine->ledger().device().is_host();
  const int window = host ? 1 : 6;
  std::vector<double> on, off, ratios;
  for (int pair = 0; pair < options.pairs; ++pair) {
    double times[2] = {};
    for (int half = 0; half < 2; ++half) {
      const bool recording = (half == 0) == (pair % 2 == 0);
      if (recording) recorder.start();
      std::vector<double> steps;
      for (int i = 0; i < window; ++i) {
        if (recording) recorder.begin_step(pair);
        const double ms = static_cast<double>(bench.step()) * 1e-6;
        if (recording) recorder.end_step();
        if (host || i > 0) steps.push_back(ms);
      }
      times[recording] = median(steps);
      if (recording) {
        recorder.stop();
        RankTimeline timeline = recorder.take();
        bench.engine->add_gpu_records(timeline);
      }
    }
    off.push_back(times[0]);
    on.push_back(times[1]);
    ratios.push_back(times[1] / times[0]);
  }
  const double ratio = median(ratios);
  const Json json{{"pairs", options.pairs},
                  {"median_off_ms", median(off)},
                  {"median_on_ms", median(on)},
                  {"median_ratio", ratio},
                  {"ratio_of_medians", median(on) / median(off)}};
  if (options.json) {
    std::printf("%s\n", json.dump().c_str());
  } else {
    std::printf(
        "%d pairs of steps: %.3f ms without recording, %.3f ms with; the median pair costs %+.2f "
        "%%\n",
        options.pairs,
        median(off),
        median(on),
        (ratio - 1) * 100);
  }
  return 0;
}

}  // namespace vitrine

// A run folder becomes one page: metrics, traces of all ranks, memory, pictures and facts.
#include "cli/run_report.h"

#include <algorithm>
#include <filesystem>

#include "analysis/finding.h"
#include "analysis/job_facts.h"
#include "core/error.h"
#include "core/format.h"
#include "core/json.h"
#include "models/registry.h"
#include "readers/kineto.h"
#include "report/report.h"
#include "schedule/fp8_linears.h"
#include "schedule/parameters.h"
#include "train/run_folder.h"
#include "train/trainer.h"

namespace vitrine {
namespace fs = std::filesystem;

namespace {

Json read_if_there(const fs::path& path) {
  return fs::exists(path) ? read_json_file(path.string()) : Json::object();
}

// Newest sample pictures first.
std::vector<std::pair<std::string, std::string>> pictures(const fs::path& folder) {
  std::vector<std::pair<std::string, std::string>> images;
  if (!fs::exists(folder)) return images;
  std::vector<fs::path> steps;
  for (const auto& entry : fs::directory_iterator(folder)) steps.push_back(entry.path());
  std::sort(steps.rbegin(), steps.rend());
  for (const fs::path& step : steps) {
    for (const char* name : {"rollout.png", "rollout.gif"}) {
      if (images.size() >= 4 || !fs::exists(step / name)) continue;
      const char* what = name[8] == 'p'
                             ? ": a held-out clip; green frames were given, red ones imagined"
                             : ": truth, model and difference, moving";
      images.emplace_back(step.filename().string() + what, (step / name).string());
    }
  }
  return images;
}

struct Traces {
  std::vector<RankFacts> ranks;
  std::vector<TimelineBlob> timelines;
};

// The first recorded window of every rank, one in memory at a time. A file that can't be read
// becomes a warning.
Traces read_traces(const fs::path& folder, int ranks, std::vector<std::string>& warnings) {
  Traces out;
  for (int rank = 0; rank < ranks; ++rank) {
    const fs::path path = folder / ("rank" + std::to_string(rank) + ".json.gz");
    if (!fs::exists(path)) continue;
    try {
      const RankTimeline timeline = read_kineto(path.string());
      out.ranks.push_back(measure_rank(timeline));
      out.timelines.push_back(encode_timeline(timeline, blob_options(static_cast<size_t>(ranks))));
      const auto dropped = timeline.info.find("recorder.dropped");
      if (dropped != timeline.info.end() && dropped->second != "0") {
        warnings.push_back("rank " + std::to_string(rank) + " dropped " + dropped->second +
                           " spans for want of memory: record fewer steps or no operations");
      }
    } catch (const IoError& error) {
      warnings.push_back("The trace of rank " + std::to_string(rank) +
                         " is left out: " + error.what());
    }
  }
  return out;
}

std::vector<RankMemory> read_memory(const std::string& run_folder, int ranks) {
  std::vector<RankMemory> out;
  for (int rank = 0; rank < ranks; ++rank) {
    const Json json = read_if_there(memory_file(run_folder, rank));
    if (!json.contains("peak_bytes")) continue;
    RankMemory memory;
    memory.rank = rank;
    memory.peak_bytes = json["peak_bytes"].get<int64_t>();
    for (int c = 0; c < kMemoryCategories; ++c) {
      const auto category = static_cast<MemoryCategory>(c);
      const char* name = memory_category_name(category);
      memory.at_peak[static_cast<size_t>(c)] = json["at_peak"].value(name, int64_t{0});
      for (const Json& holder : json["holders"]) {
        if (holder["category"] != name) continue;
        memory.holders.push_back(
            {category, holder["holder"].get<std::string>(), holder["bytes"].get<int64_t>()});
      }
    }
    std::stable_sort(memory.holders.begin(),
                     memory.holders.end(),
                     [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
    out.push_back(std::move(memory));
  }
  return out;
}

std::string floating(DType dtype) {
  const std::string name = dtype_name(dtype);
  return name[0] == 'f' ? "fp" + name.substr(1) : name;
}

std::string precision(const Strategy& strategy) {
  if (!strategy.mixed()) return floating(strategy.compute_dtype);
  return floating(strategy.compute_dtype) + " (" + floating(strategy.master_dtype) +
         " master weights" +
         (strategy.moment_dtype == DType::kF32
              ? ""
              : ", " + floating(strategy.moment_dtype) + " optimizer states") +
         ", gradients in " + floating(strategy.gradient_dtype) + ")";
}

std::string layout(const RunConfig& config, int ranks) {
  const Mesh& mesh = config.strategy.mesh;
  std::string text = std::to_string(ranks);
  if (mesh.pipeline > 1)
    text += format(" (%d data x %d pipeline stages)", mesh.data, mesh.pipeline);
  return text;
}

// Returns the model's unit of throughput ("frames").
std::string add_config_facts(const RunConfig& config, int ranks, ReportInput& input) {
  BuildOptions build;
  build.micro_batch = config.strategy.micro_batch;
  build.fp8 = fp8_linears(config.fp8, config.strategy);
  const BuiltModel built = build_model(parse_json(config.model, "model"), build);
  const ParameterTable table = make_parameter_table(built.model, config.strategy);
  std::string parameters = format_count(static_cast<double>(table.total_elements));
  if (table.trainable_elements != table.total_elements) {
    parameters += ", " + format_count(static_cast<double>(table.trainable_elements)) + " trained";
  }
  const Strategy& s = config.strategy;
  input.subtitle = built.model.description;
  input.facts = {{"Parameters", parameters},
                 {"Precision", precision(s) + (config.fp8 ? ", products of the body in fp8" : "")},
                 {"Ranks", layout(config, ranks)},
                 {"ZeRO stage", std::to_string(s.shard.stage())},
                 {"Global batch",
                  format("%lld samples (%lld per micro-batch x %lld accumulated x %d ranks)",
                         static_cast<long long>(s.global_batch()),
                         static_cast<long long>(s.micro_batch),
                         static_cast<long long>(s.accumulation),
                         s.mesh.data)}};
  if (s.recompute) input.facts.emplace_back("Activations", "recomputed in backward");
  return built.model.unit;
}

void add_result_facts(const Json& result, int ranks, const std::string& unit, ReportInput& input) {
  if (!result.contains("steps")) {
    input.warnings.push_back(
        "The run has no result.json: it is still going on, or was stopped before its end.");
    return;
  }
  input.facts.emplace_back("Steps", std::to_string(result["steps"].get<int64_t>()));
  input.facts.emplace_back("Time", format_ns(result.value("seconds", 0.0) * 1e9));
  input.facts.emplace_back(
      "Throughput",
      format_count(result.value("units_per_second", 0.0)) + " " + unit + "/s, all ranks");
  const double share = result.value("exposed_communication_share", 0.0);
  const std::string hint = communication_hint(share, ranks);
  if (hint.find("bad") != std::string::npos)
    input.warnings.push_back("Over the whole run, " + hint + ".");
  const double data_share = result.value("data_wait_share", 0.0);
  if (ranks > 1) {
    const char* verdict = share > 0.3   ? "bad, over 30 %"
                          : share < 0.1 ? "good, under 10 %"
                                        : "fair, 10 to 30 %";
    input.facts.emplace_back("Exposed communication",
                             format("%.1f %% of the run (%s)", 100 * share, verdict));
  }
  input.facts.emplace_back("Waiting for data", format("%.1f %% of the run", 100 * data_share));
  const auto world = result.find("world_model");
  if (world != result.end()) {
    input.facts.emplace_back("Held-out PSNR",
                             format("%.1f dB one frame ahead (copying the last frame: %.1f)",
                                    world->value("psnr", 0.0),
                                    world->value("psnr_copy", 0.0)));
  }
  if (const auto skipped = result.value("skipped_steps", int64_t{0}); skipped > 0) {
    input.warnings.push_back(std::to_string(skipped) +
                             " steps were skipped because gradients were not finite");
  }
}

}  // namespace

std::string write_run_report(const std::string& run_folder, const std::string& output) {
  const fs::path folder(run_folder);
  if (!fs::exists(folder / "run.json")) {
    throw IoError(run_folder +
                  " is not a run folder: it has no run.json (vitrine train makes one)");
  }
  const Json environment = read_if_there(folder / "environment.json");
  const int ranks = environment.value("ranks", 1);
  ConfigOptions options;
  options.world = ranks;
  const RunConfig config = read_run_config((folder / "run.json").string(), options);
  ReportInput input;
  input.title = folder.filename().empty() ? folder.parent_path().filename().string()
                                          : folder.filename().string();
  if (fs::exists(folder / "metrics.jsonl"))
    input.metrics = read_metrics((folder / "metrics.jsonl").string());
  const std::string unit = add_config_facts(config, ranks, input);
  add_result_facts(read_if_there(folder / "result.json"), ranks, unit, input);
  Traces traces = read_traces(folder / "trace", ranks, input.warnings);
  input.timelines = std::move(traces.timelines);
  const bool traced = !traces.ranks.empty();
  const JobFacts job = measure_job(std::move(traces.ranks), {}, {});
  const Diagnosis diagnosis = diagnose(job);
  if (traced) input.job = &job, input.diagnosis = &diagnosis;
  input.memory = read_memory(run_folder, ranks);
  input.images = pictures(folder / "samples");
  input.footer = "Vitrine " + environment.value("version", std::string()) + " on " +
                 environment.value("host", std::string("this host")) + ", " +
                 environment.value("cpu", std::string()) + ", " +
                 environment.value("started", std::string());
  const std::string path = output.empty() ? (folder / "report.html").string() : output;
  write_report(input, path);
  return path;
}

}  // namespace vitrine

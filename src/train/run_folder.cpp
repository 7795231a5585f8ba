// Run folders.
#include "train/run_folder.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "core/clock.h"
#include "core/error.h"
#include "core/json.h"
#include "core/parallel.h"

namespace vitrine {
namespace fs = std::filesystem;

namespace {

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

Json world_json(const WorldEval& eval) {
  Json horizons = Json::array();
  for (const HorizonError& h : eval.horizons) {
    Json row{{"horizon", h.horizon}, {"psnr", h.psnr}, {"psnr_copy", h.psnr_copy}};
    if (eval.has_state) {
      row["centre_error_pixels"] = h.model_pixels;
      row["copy_centre_error_pixels"] = h.copy_pixels;
      row["lost"] = h.lost;
    }
    horizons.push_back(std::move(row));
  }
  return {{"clips", eval.clips},
          {"psnr", eval.psnr},
          {"psnr_copy", eval.psnr_copy},
          {"psnr_shuffled_actions", eval.psnr_shuffled},
          {"prediction_std", eval.prediction_std},
          {"horizons", std::move(horizons)}};
}

}  // namespace

void check_run_folder(const TrainOptions& options) {
  if (fs::exists(fs::path(options.run_folder) / "run.json") && !options.resume) {
    throw ConfigError(
        "the run folder " + options.run_folder +
        " holds a run already: give another with --run, or go on with it by --resume");
  }
}

void prepare_run_folder(const RunConfig& config, const TrainOptions& options, int ranks) {
  check_run_folder(options);
  const fs::path folder(options.run_folder);
  std::error_code error;
  for (const char* sub : {"trace", "memory", "checkpoints", "samples", "log"}) {
    fs::create_directories(folder / sub, error);
    if (error) throw IoError("cannot create " + (folder / sub).string() + ": " + error.message());
  }
  write_text_file((folder / "run.json").string(), resolved_json(config) + "\n");
  utsname name{};
  uname(&name);
  const Json environment{{"started", wall_time_text()},
                         {"version", VITRINE_VERSION},
                         {"host", name.nodename},
                         {"system", std::string(name.sysname) + " " + name.release},
                         {"cpu", cpu_model()},
                         {"cpus", effective_cpus()},
                         {"compute_threads", compute_threads()},
                         {"ranks", ranks},
                         {"compiler", __VERSION__}};
  write_text_file((folder / "environment.json").string(), environment.dump(2) + "\n");
}

RunConfig read_run_for_one_rank(const std::string& run_folder) {
  const std::string path = run_folder + "/run.json";
  if (!fs::exists(path)) {
    throw IoError(run_folder +
                  " is not a run folder: it has no run.json (vitrine train makes one)");
  }
  Json file = read_json_file(path);
  for (const char* key : {"mesh", "train_batch_size", "zero_optimization"}) file.erase(key);
  return make_run_config(file);
}

std::string memory_file(const std::string& run_folder, int rank) {
  return run_folder + "/memory/rank" + std::to_string(rank) + ".json";
}

void write_memory(const std::string& run_folder, int rank, const MemoryLedger& ledger) {
  constexpr size_t kLargest = 8;  // of each category
  const MemoryByCategory at_peak = ledger.at_peak();
  Json split = Json::object(), highest = Json::object(), holders = Json::array();
  for (int c = 0; c < kMemoryCategories; ++c) {
    const auto category = static_cast<MemoryCategory>(c);
    split[memory_category_name(category)] = at_peak[static_cast<size_t>(c)];
    highest[memory_category_name(category)] = ledger.peak(category);
    auto largest = ledger.holders(category);
    if (largest.size() > kLargest) largest.resize(kLargest);
    for (const auto& [holder, bytes] : largest) {
      holders.push_back(
          {{"category", memory_category_name(category)}, {"holder", holder}, {"bytes", bytes}});
    }
  }
  const Json json{{"rank", rank},
                  {"peak_bytes", ledger.peak()},
                  {"at_peak", split},
                  {"peak_by_category", highest},
                  {"holders", holders}};
  write_text_file(memory_file(run_folder, rank), json.dump(1) + "\n");
}

std::string world_eval_json(const WorldEval& eval) { return world_json(eval).dump(2); }

std::string result_json(const TrainResult& result) {
  Json json{{"steps", result.steps},
            {"skipped_steps", result.skipped_steps},
            {"first_loss", result.first_loss},
            {"loss", result.loss},
            {"seconds", result.seconds},
            {"units_per_second", result.units_per_second},
            {"exposed_communication_share", result.comm_share},
            {"data_wait_share", result.data_share},
            {"peak_bytes", result.peak_bytes},
            {"checkpoint", result.checkpoint},
            {"traces", result.traces}};
  if (result.world) json["world_model"] = world_json(*result.world);
  return json.dump();
}

void write_result(const std::string& run_folder, const TrainResult& result) {
  write_text_file(run_folder + "/result.json", result_json(result) + "\n");
}

}  // namespace vitrine

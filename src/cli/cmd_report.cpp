// vitrine report: one self-contained page about a run.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "cli/commands.h"
#include "cli/run_report.h"
#include "core/error.h"
#include "core/format.h"
#include "core/json.h"
#include "report/report.h"
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
    for (const char* name : {"rollout.gif", "rollout.png"}) {
      if (images.size() < 4 && fs::exists(step / name)) {
        images.emplace_back(step.filename().string() + ": truth, model, difference", (step / name).string());
      }
    }
  }
  return images;
}

}  // namespace

std::string write_run_report(const std::string& run_folder, const std::string& output) {
  const fs::path folder(run_folder);
  if (!fs::exists(folder / "run.json")) {
    throw IoError(run_folder + " is not a run folder: it has no run.json (vitrine train makes one)");
  }
  const Json run = read_json_file((folder / "run.json").string());
  const Json environment = read_if_there(folder / "environment.json");
  const Json result = read_if_there(folder / "result.json");
  ReportInput input;
  input.title = folder.filename().empty() ? folder.parent_path().filename().string() : folder.filename().string();
  if (fs::exists(folder / "metrics.jsonl")) input.metrics = read_metrics((folder / "metrics.jsonl").string());
  const int ranks = environment.value("ranks", 1);
  const Json model = run.value("model", Json::object());
  input.subtitle = model.value("family", std::string("model")) + " " + model.value("size", std::string()) + " on " +
                   std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks") + " of " +
                   environment.value("host", std::string("this host"));
  const Json zero = run.value("zero_optimization", Json::object());
  input.facts = {{"Ranks", std::to_string(ranks)},
                 {"ZeRO stage", std::to_string(zero.value("stage", 0))},
                 {"Global batch", std::to_string(run.value("train_batch_size", int64_t{0}))}};
  if (result.contains("steps")) {
    input.facts.emplace_back("Steps", std::to_string(result["steps"].get<int64_t>()));
    input.facts.emplace_back("Last loss", format("%.5g", result.value("loss", 0.0)));
    input.facts.emplace_back("Time", format_ns(result.value("seconds", 0.0) * 1e9));
    input.facts.emplace_back("Peak memory of rank 0", format_bytes(result.value("peak_bytes", 0.0)));
    const std::string hint = communication_hint(result.value("exposed_communication_share", 0.0), ranks);
    if (hint.find("bad") != std::string::npos) input.warnings.push_back(hint);
    if (result.value("skipped_steps", 0) > 0) {
      input.warnings.push_back(std::to_string(result.value("skipped_steps", 0)) +
                               " steps were skipped because gradients were not finite");
    }
  }
  input.images = pictures(folder / "samples");
  input.footer = "Vitrine " + environment.value("version", std::string()) + ", " +
                 environment.value("cpu", std::string()) + ", " + environment.value("started", std::string());
  const std::string path = output.empty() ? (folder / "report.html").string() : output;
  write_report(input, path);
  return path;
}

void add_report(CLI::App& app, CommandAction& action) {
  struct Arguments {
    std::string run, output;
  };
  auto a = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("report", "Write a run's page: curves, memory, timeline, pictures");
  command->add_option("run", a->run, "Run folder")->required();
  command->add_option("-o,--output", a->output, "HTML file (default: RUN/report.html)");
  command->footer("Example: vitrine report runs/demo -o demo.html");
  command->callback([a, &action] {
    action = [a] {
      std::printf("%s\n", write_run_report(a->run, a->output).c_str());
      return 0;
    };
  });
}

}  // namespace vitrine

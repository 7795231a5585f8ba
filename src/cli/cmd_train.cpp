// vitrine train: a training run from a run file.
#include <cstdio>
#include <memory>

#include "cli/commands.h"
#include "cli/launch.h"
#include "cli/run_report.h"
#include "cli/terminal.h"
#include "config/run_config.h"
#include "core/error.h"
#include "gpu/gpu.h"
#include "plan/what_fits.h"
#include "train/run_folder.h"
#include "train/trainer.h"

namespace vitrine {
namespace {

struct Arguments {
  std::string file, run_folder;
  int ranks = 1;
  std::vector<std::string> sets;
  std::string device;
  bool resume = false, json = false, quiet = false;
};

std::string stem(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  return name.substr(0, name.rfind('.'));
}

// What would have fitted on this rank's GPU; "" where that can't be told, so as not to hide the
// error.
std::string memory_advice(const RunConfig& config, int ranks) {
  // What the driver, the libraries' handles and cut blocks take.
  constexpr int64_t kOverhead = int64_t{3} << 30;
  try {
    const auto index = static_cast<size_t>(rank_environment().gpu());
    const auto memory = static_cast<int64_t>(gpu_devices().at(index).memory_bytes);
    return "\n" + what_fits_text(config, world_size(ranks), memory - kOverhead);
  } catch (const std::exception&) {
    return "";
  }
}

}  // namespace

int train_command(const RunConfig& config,
                  const std::string& run_folder,
                  int ranks,
                  bool resume,
                  bool json,
                  bool quiet,
                  const CommandLine& line) {
  if (rank_environment().size ==
      1) {  // before the ranks' logs are opened over those of an older run
    TrainOptions asked;
    asked.run_folder = run_folder;
    asked.resume = resume;
    check_run_folder(asked);
  }
  return run_ranks(
      ranks,
      line,
      run_folder + "/log",
      config.train.timeout_seconds,
      config.train.device,
      [&](World* world) {
        const bool first = !world || world->rank() == 0;
        ProgressBar bar;
        TrainOptions options;
        options.run_folder = run_folder;
        options.resume = resume;
        options.world = world;
        if (first && !quiet && !json) {
          const std::string notes =
              remarks_text(config.remarks, {Remark::Status::kIgnored, Remark::Status::kNotYet});
          if (!notes.empty()) bar.message(notes);
          options.on_progress = [&](const ProgressLine& progress) { bar.show(progress); };
          options.on_message = [&](const std::string& text) { bar.message(text); };
        }
        TrainResult result;
        try {
          result = train(config, options);
        } catch (const OutOfMemory& error) {
          if (config.train.device != "gpu") throw;
          throw OutOfMemory(error.what() + memory_advice(config, ranks));
        }
        bar.finish();
        // Every rank's trace must be on disk before the page is made.
        if (world && world->size() > 1) {
          std::vector<int> all;
          for (int r = 0; r < world->size(); ++r) all.push_back(r);
          world->host_group(all, "end")->barrier();
        }
        if (!first) return 0;
        const std::string page = write_run_report(run_folder);
        if (json) {
          std::printf("%s\n", result_json(result).c_str());
        } else {
          std::printf("%lld steps, loss %.5g -> %.5g, %.1f s; report: %s\n",
                      static_cast<long long>(result.steps),
                      result.first_loss,
                      result.loss,
                      result.seconds,
                      page.c_str());
        }
        return 0;
      });
}

void add_train(CLI::App& app, CommandAction& action, const CommandLine& line) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("train", "Train a model from a run file");
  command
      ->add_option(
          "file", arguments->file, "Run file (JSON; a DeepSpeed configuration's keys are known)")
      ->required();
  command->add_option("--ranks", arguments->ranks, "Ranks to start on this host")
      ->check(CLI::PositiveNumber);
  command->add_option(
      "--set", arguments->sets, "Override one key, e.g. train.steps=50 (repeatable)");
  command->add_option("--device", arguments->device, "cpu or gpu (one a rank); as train.device")
      ->check(CLI::IsMember({"cpu", "gpu"}));
  command->add_option(
      "--run", arguments->run_folder, "Run folder (default: runs/<name of the file>)");
  command->add_flag(
      "--resume", arguments->resume, "Go on from the newest checkpoint of the run folder");
  command->add_flag("--json", arguments->json, "Print only the result, as one JSON line");
  command->add_flag("--quiet", arguments->quiet, "No progress");
  command->footer(
      "Example: vitrine train examples/tiny_world.json --ranks 2 --set zero_optimization.stage=3");
  command->callback([arguments, &action, &line] {
    action = [arguments, &line] {
      ConfigOptions options;
      options.world = world_size(arguments->ranks);
      options.overrides = arguments->sets;
      if (!arguments->device.empty()) {
        options.overrides.push_back("train.device=" + arguments->device);
      }
      const RunConfig config = read_run_config(arguments->file, options);
      const std::string name = config.name.empty() ? stem(arguments->file) : config.name;
      const std::string folder =
          arguments->run_folder.empty() ? "runs/" + name : arguments->run_folder;
      return train_command(config,
                           folder,
                           arguments->ranks,
                           arguments->resume,
                           arguments->json,
                           arguments->quiet,
                           line);
    };
  });
}

}  // namespace vitrine

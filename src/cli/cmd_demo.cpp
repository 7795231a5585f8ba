// vitrine demo: the tiny video world model, ZeRO-2 on two ranks, in about a minute.
#include <cstdio>
#include <filesystem>
#include <memory>

#include "cli/commands.h"
#include "cli/launch.h"
#include "cli/run_report.h"
#include "core/error.h"
#include "core/json.h"

namespace vitrine {

const char* demo_config_text();

namespace {

// Only what a run made is taken away: a mistyped --run must never cost anyone a folder.
void remove_older_run(const std::string& folder) {
  namespace fs = std::filesystem;
  if (!fs::exists(folder) || fs::is_empty(folder)) return;
  if (!fs::exists(fs::path(folder) / "run.json")) {
    throw UsageError(
        folder +
        " is there already and holds no run (no run.json): give another folder with --run");
  }
  fs::remove_all(folder);
}

}  // namespace

void add_demo(CLI::App& app, CommandAction& action, const CommandLine& line) {
  struct Arguments {
    int ranks = 2;
    double seconds = 0;
    std::string folder = "runs/demo";
    std::vector<std::string> sets;
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command =
      app.add_subcommand("demo", "Train the tiny video world model and show what it imagines");
  command->add_option("--ranks", arguments->ranks, "Ranks to start on this host")
      ->capture_default_str();
  command->add_option(
      "--seconds", arguments->seconds, "Time budget of the training (default: the file's)");
  command
      ->add_option("--run", arguments->folder, "Run folder; a demo's older run there is replaced")
      ->capture_default_str();
  command->add_option("--set", arguments->sets, "Override one key (repeatable)");
  command->footer("Example: vitrine demo --ranks 2 --seconds 60");
  command->callback([arguments, &action, &line] {
    action = [arguments, &line] {
      Json file = parse_json(demo_config_text(), "the demo's run file");
      ConfigOptions options;
      options.world = world_size(arguments->ranks);
      options.overrides = arguments->sets;
      if (arguments->seconds > 0) {
        options.overrides.push_back("train.seconds=" + std::to_string(arguments->seconds));
      }
      const RunConfig config = make_run_config(file, options);
      const bool launcher = rank_environment().size == 1;
      if (launcher) remove_older_run(arguments->folder);
      const int code =
          train_command(config, arguments->folder, arguments->ranks, false, false, false, line);
      if (launcher && code == 0) {
        std::printf("Look at %s/report.html and the pictures in %s/samples.\n",
                    arguments->folder.c_str(),
                    arguments->folder.c_str());
      }
      return code;
    };
  });
}

}  // namespace vitrine

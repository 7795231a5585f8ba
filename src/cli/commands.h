// The command line's commands: each adds itself to the parser and leaves what to run in `action`.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

namespace vitrine {

// Set by the chosen sub-command; returns the exit code.
using CommandAction = std::function<int()>;

// The arguments of this process without its name, for starting ranks with the same ones.
struct CommandLine {
  std::vector<std::string> arguments;
};

void add_train(CLI::App& app, CommandAction& action, const CommandLine& line);
void add_demo(CLI::App& app, CommandAction& action, const CommandLine& line);
void add_rollout(CLI::App& app, CommandAction& action, const CommandLine& line);
void add_sample(CLI::App& app, CommandAction& action);
void add_data(CLI::App& app, CommandAction& action);
void add_report(CLI::App& app, CommandAction& action);
void add_diagnose(CLI::App& app, CommandAction& action);
void add_compare(CLI::App& app, CommandAction& action);
void add_trace(CLI::App& app, CommandAction& action);
void add_bench(CLI::App& app, CommandAction& action, const CommandLine& line);
void add_calibrate(CLI::App& app, CommandAction& action, const CommandLine& line);
void add_explain(CLI::App& app, CommandAction& action);
void add_plan(CLI::App& app, CommandAction& action);
void add_validate(CLI::App& app, CommandAction& action);
void add_doctor(CLI::App& app, CommandAction& action);
void add_top(CLI::App& app, CommandAction& action);

}  // namespace vitrine

// Steps shared by commands: training of a resolved configuration, and the page of a run folder.
#pragma once

#include <string>

#include "cli/commands.h"
#include "config/run_config.h"

namespace vitrine {

int train_command(const RunConfig& config,
                  const std::string& run_folder,
                  int ranks,
                  bool resume,
                  bool json,
                  bool quiet,
                  const CommandLine& line);

// Writes RUN/report.html from the folder's metrics, traces and samples; returns its path.
std::string write_run_report(const std::string& run_folder, const std::string& output = "");

}  // namespace vitrine

// vitrine plan RUN.json --ranks N: a run file on CPU ranks of this machine.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "timeline/timeline.h"

namespace vitrine {

struct PlanRanksOptions {
  std::string run_file, profile, timeline;
  int ranks = 0;
  std::vector<std::string> overrides;  // as of `vitrine train --set`
  bool json = false;
};

// What of `command` was given and means nothing for ranks is refused. Throws UsageError, and what
// read_run_config, read_measured and plan_engine throw.
int print_plan_of_ranks(const PlanRanksOptions& options, const CLI::App& command);

// Refuses with UsageError a name that does not end in .json or .json.gz.
void check_timeline_name(const std::string& path);
// PATH itself for one timeline, "name.rank8.json.gz" for each of several; the names go to stderr.
void write_timelines(const std::vector<RankTimeline>& timelines, const std::string& path);

}  // namespace vitrine

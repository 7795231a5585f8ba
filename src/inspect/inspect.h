// From paths to the facts of a job: files are recognised, read and measured, a few at a time.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "analysis/job_facts.h"
#include "readers/inputs.h"
#include "timeline/timeline.h"

namespace vitrine {

struct InspectOptions {
  // Called for every rank while its timeline is in memory, from several threads at once, in no
  // order. What it throws ends the inspection.
  std::function<void(const RankTimeline&, const Input&)> visit;
  int files_at_once = 2;  // bounds the memory: so many timelines are held
};

// Each path is a file or a folder (readers/inputs.h says which kinds). Throws IoError when a path
// names nothing that can be read, or when not one trace among several could be; a trace that can't
// be read beside others that can is a warning. Snapshots go to the rank that their file's name
// says, or to the only rank there is.
JobFacts inspect_job(const std::vector<std::string>& paths, const InspectOptions& options = {});

// The ranks of one trace (kind kKineto or kNsys).
std::vector<RankTimeline> read_timelines(const Input& input);

}  // namespace vitrine

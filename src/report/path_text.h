// The critical path and what-if as text for logs.
#pragma once

#include <string>

#include "analysis/job_facts.h"

namespace vitrine {

// Of the rank whose steps are longest; null where no rank has a path.
const RankFacts* bounding_rank(const JobFacts& job);
// "steps 3 to 5", "the whole trace".
std::string path_window(const PathFacts& path);
void write_path(const JobFacts& job, std::string& out);

}  // namespace vitrine

// All that is to be said of a job's input, gathered in one way for text, JSON and page.
#pragma once

#include <string>
#include <vector>

#include "analysis/job_facts.h"

namespace vitrine {

// The ranks' first ("rank 3: ...", "ranks 0, 1: ...", "every rank: ...", each text once), then the
// job's own, then those of link tables and NCCL logs with their file.
std::vector<std::string> job_warnings(const JobFacts& job);

}  // namespace vitrine

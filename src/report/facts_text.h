// Memory, links and NCCL in a few lines each, for the text of a diagnosis.
#pragma once

#include <string>

#include "analysis/job_facts.h"

namespace vitrine {

// Appends nothing where the input holds none of them.
void write_facts(const JobFacts& job, std::string& out);

// "1 rank", "2 ranks".
std::string counted(size_t count, const char* noun);

}  // namespace vitrine

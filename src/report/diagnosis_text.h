// A diagnosis as text for logs.
#pragma once

#include <string>

#include "analysis/finding.h"

namespace vitrine {

// Verdict first, then what was read, how the step is spent by rank, findings by number with cost,
// evidence and fixes, notes in a line each, what could not be judged, warnings. Plain ASCII, lines
// of at most 100 characters.
std::string diagnosis_text(const JobFacts& job, const Diagnosis& diagnosis);

}  // namespace vitrine

// The stable --json interface of an analysis: docs/formats/analysis.md says every key.
#pragma once

#include "analysis/compare.h"
#include "analysis/finding.h"
#include "analysis/job_facts.h"
#include "core/json.h"

namespace vitrine {

struct AnalysisJsonOptions {
  // Rows of the longest lists (kernels, operators, collectives, gaps) a rank; 0 = all.
  size_t max_rows = 50;
};

Json comparison_json(const Comparison& comparison);

Json analysis_json(const JobFacts& job,
                   const Diagnosis& diagnosis,
                   const AnalysisJsonOptions& options = {});

}  // namespace vitrine

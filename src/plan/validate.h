// Predictions against published measurements: constants fitted without the source that they are
// judged on, errors by source, what could not be taken and why.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "plan/measurements.h"

namespace vitrine {

// Of signed relative errors e = predicted / measured - 1.
struct ErrorSummary {
  size_t rows = 0;
  double median_abs_error = 0, p90_abs_error = 0;
  double bias = 0;  // median of the signed errors
};
ErrorSummary summarise(std::vector<double> errors);

struct PredictedRow {
  size_t measurement = 0;   // index into Measurements::taken
  double step_s = 0;        // predicted; 0: not asked
  double memory_bytes = 0;  // of the fullest card, predicted
  bool fits = true;
};

struct SourceSummary {
  ErrorSummary step_time, memory;
  size_t oom_rows = 0, oom_right = 0;
  size_t refused = 0;
};

struct Validation {
  size_t rows_taken = 0;
  std::vector<RefusedRow> refused;
  std::vector<PredictedRow> rows;
  ErrorSummary step_time;      // rows on several cards
  ErrorSummary step_time_all;  // and on one
  ErrorSummary memory;
  size_t oom_rows = 0, oom_right = 0;
  double oom_accuracy() const {
    return oom_rows == 0 ? 0 : static_cast<double>(oom_right) / static_cast<double>(oom_rows);
  }
  std::map<std::string, SourceSummary> by_source;
  std::map<std::string, ErrorSummary> by_card;  // step time, rows on several cards
  // Constants fitted to all rows of a group (what ships), by group.
  std::map<std::string, Efficiency> fitted;
  // Constants that a source was judged by: fitted to its group's other sources. Key: group + "
  // without " + source.
  std::map<std::string, Efficiency> folds;
};

struct ValidateOptions {
  // Leave one source out: a source's rows are predicted with constants fitted to the others of its
  // group; a group with one source keeps its profile's constants. false: the profile's constants.
  bool fit = true;
};
Validation validate(const Measurements& measurements, const ValidateOptions& options = {});

}  // namespace vitrine

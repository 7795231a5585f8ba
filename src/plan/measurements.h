// Published measurements as jobs that can be predicted: rows of a CSV file, with the conventions of
// the software that each source used.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "machines/cluster.h"
#include "plan/cluster_strategy.h"
#include "plan/model_shape.h"

namespace vitrine {

// Columns: docs/formats/measurements.md. Unknown columns are carried along.
struct CsvTable {
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;
  std::vector<int> line;  // of the file, where each row begins
  // "" where the column is absent or the cell empty.
  const std::string& cell(size_t row, const std::string& column) const;
};
// RFC 4180: quotes, doubled quotes, line breaks inside quotes. Throws IoError; ConfigError for a
// row whose number of cells differs from the heading's, naming the line.
CsvTable read_csv(const std::string& path);

struct Measurement {
  std::string id, source;
  ModelShape model;
  Cluster cluster;
  ClusterStrategy strategy;
  Efficiency prior;         // of the group, before any measurement
  std::string group;        // accelerator and era that share fitted constants
  double step_s = 0;        // 0: not measured (or not to be derived)
  double memory_bytes = 0;  // peak of the fullest card; 0: not measured
  // `memory_bytes` is itself arithmetic: states and activations alone, no buffers and no overheads.
  bool memory_by_arithmetic = false;
  bool out_of_memory = false;  // it was tried and did not fit
  bool ran = false;            // it did, and its layout says whether it recomputed
  bool single_gpu() const { return strategy.world() == 1; }
};

struct RefusedRow {
  std::string id, source, reason;
};

struct Measurements {
  std::vector<Measurement> taken;
  std::vector<RefusedRow> refused;
};
Measurements read_measurements(const CsvTable& table);

}  // namespace vitrine

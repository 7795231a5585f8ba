// What `vitrine calibrate` measured on a machine: times of operations and collectives of CPU ranks,
// kept under "measured" in the profile that it writes.
#pragma once

#include <string>
#include <vector>

#include "core/json_fwd.h"

namespace vitrine {

// One operation (of ops/op.h, or a pass of the optimizer) at one shape.
struct MeasuredRow {
  std::string op;
  bool backward = false;
  std::vector<double> features;  // as ops/op_features.h
  double work = 0;               // flops of products, bytes of other operations
  double ns = 0;                 // typical, disturbances left out
};

// Measured with this many compute threads a rank while `ranks` ranks did the same.
struct MeasuredOperations {
  int threads = 1, ranks = 1;
  std::string dtype;  // "f32", "bf16"
  std::vector<MeasuredRow> rows;
};

// `bytes`: of one rank's piece; `cores`: processors that a rank keeps busy meanwhile.
struct MeasuredCollective {
  std::string kind;  // "all_gather", "all_gather_v", "reduce_scatter", "reduce_scatter_v", "send"
  int ranks = 2;
  double bytes = 0, ns = 0, cores = 0;
};

struct MeasuredMachine {
  std::string processor;  // as the system names it
  int cpus = 1;
  double handoff_ns = 0;  // from a thread that has done something to one that waits for it
  std::vector<MeasuredOperations> operations;
  std::vector<MeasuredCollective> collectives;
  double disk_write_bytes_per_s = 0, disk_read_bytes_per_s = 0;
};

Json measured_json(const MeasuredMachine& machine);
// Throws ConfigError naming the key; for values that are not positive too.
MeasuredMachine measured_from_json(const Json& json, const std::string& where);
// The "measured" section of a profile file. Throws ConfigError where there is none, IoError for an
// unreadable file.
MeasuredMachine read_measured(const std::string& profile_file);

}  // namespace vitrine

// A hand-made calibration whose times are known without measuring.
#pragma once

#include <string>
#include <vector>

#include "machines/measured.h"
#include "ops/op_features.h"

namespace vitrine {

// Every operation takes 1 ns a unit of work; every collective 1 us and 1 ns a byte.
inline MeasuredMachine even_machine(int cpus) {
  MeasuredMachine machine;
  machine.processor = "even";
  machine.cpus = cpus;
  machine.handoff_ns = 1;
  MeasuredOperations table;
  table.threads = 1;
  table.dtype = "f32";
  for (const std::string& op : op_names()) {
    const size_t features = op == "attention" ? 5 : 3;
    for (const bool backward : {false, true})
      table.rows.push_back({op, backward, std::vector<double>(features, 4), 1000, 1000});
  }
  for (const char* pass : {"adamw", "squares", "copy"})
    table.rows.push_back({pass, false, {10}, 1000, 1000});
  machine.operations.push_back(table);
  for (const char* kind :
       {"all_gather", "all_gather_v", "reduce_scatter", "reduce_scatter_v", "send"}) {
    machine.collectives.push_back({kind, 2, 1000, 2000, 1});
    machine.collectives.push_back({kind, 2, 1'000'000, 1'001'000, 1});
  }
  return machine;
}

}  // namespace vitrine

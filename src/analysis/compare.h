// Two runs side by side: what takes more or less time and memory, by step, phase, cause of
// idleness, operation, kernel and collective.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/job_facts.h"

namespace vitrine {

// One quantity of both runs. `a` and `b` are per step and rank: medians over the steps where the
// quantity is a step's own, else the whole's divided by steps; the mean over the ranks. Totals of
// the recording where a run has no steps.
struct ComparedRow {
  std::string name;
  double a = 0, b = 0;              // nanoseconds, or bytes in `memory`
  double difference = 0;            // b - a
  double share = 0;                 // of the change of the step; 0 where the step did not change
  double count_a = 0, count_b = 0;  // per step and rank; 0 where it is not counted
  bool in_a = true, in_b = true;    // false: that run does not have it at all
};

struct Comparison {
  std::string name_a, name_b;  // what was read
  size_t ranks_a = 0, ranks_b = 0;
  bool comparable = false;  // false: one has no work on a device, and times are not compared
  bool per_step = false;    // false: one of them has no steps, all figures are totals
  ComparedRow step;         // the usual step, of the slowest rank
  // What a step is made of; these add up to the step of each run (nearly: medians).
  std::vector<ComparedRow> parts;   // "compute", "exposed communication", "exposed copies", "idle"
  std::vector<ComparedRow> phases;  // compute by phase
  std::vector<ComparedRow> idle;    // by cause
  std::vector<ComparedRow> host;    // "data loader", "synchronising calls", "allocator calls"
  std::vector<ComparedRow> operations;       // time of the kernels launched in them, by name
  std::vector<ComparedRow> host_operations;  // host time without operators inside, by name
  std::vector<ComparedRow> kernels;          // by name, template arguments left out
  std::vector<ComparedRow> collectives;      // by name and size
  std::vector<ComparedRow> memory;  // bytes: "peak allocated", "peak reserved"; the fullest rank
  std::vector<std::string> notes;   // what could not be compared, and why
  std::string summary;              // one paragraph; names the largest cause
};

// Rows by the size of their difference, largest first. Ranks need not be as many, nor the same.
Comparison compare(const JobFacts& a, const JobFacts& b);

// "void at::native::vectorized_elementwise_kernel<4, ...>(int, ...)" as
// "at::native::vectorized_elementwise_kernel": the same kernel of two versions or shapes has one
// name.
std::string kernel_base_name(const std::string& name);

}  // namespace vitrine

// One self-contained HTML page about a training job, traced by others or run by Vitrine: what was
// found, where time and memory go, the timeline of all ranks, tables, curves, pictures. Works from
// a file, without a network.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "analysis/finding.h"
#include "analysis/job_facts.h"
#include "core/memory_ledger.h"
#include "metrics/metrics_reader.h"
#include "report/timeline_blob.h"

namespace vitrine {

// The peak of one rank, as its ledger knows it.
struct RankMemory {
  struct Holder {
    MemoryCategory category;
    std::string name;
    int64_t bytes;
  };
  int32_t rank = 0;
  int64_t peak_bytes = 0;
  MemoryByCategory at_peak{};
  std::vector<Holder> holders;  // the largest, now

  static RankMemory of(int32_t rank, const MemoryLedger& ledger, size_t holders = 8);
};

struct ReportInput {
  std::string title;     // the run's name
  std::string subtitle;  // one sentence: what, on what
  // Shown as "label value" in the head: model, parameters, ranks, ZeRO stage, precision, ...
  std::vector<std::pair<std::string, std::string>> facts;
  MetricsTable metrics;  // empty: no curves
  // What was measured and what it means. Null: no breakdown, no tables; no findings.
  const JobFacts* job = nullptr;
  const Diagnosis* diagnosis = nullptr;
  // By rank; empty: no timeline. The ranks' times are brought together by job->clocks where there
  // is a job, else by their wall anchors.
  std::vector<TimelineBlob> timelines;
  std::vector<RankMemory> memory;     // empty: the peaks are those of the job or the samples
  int64_t memory_capacity_bytes = 0;  // of one rank; 0 = unknown
  std::vector<std::pair<std::string, std::string>> images;  // (title, path) of GIF or PNG files
  // A prediction, as `vitrine plan --json` prints it, with its strategy in words ("description").
  // Empty: none.
  std::string plan;
  std::vector<std::string> warnings;
  std::string footer;  // program version, machine, date
};

// Written beside `path` and renamed. An unreadable picture becomes a warning on the page. Throws
// IoError.
void write_report(const ReportInput& input, const std::string& path);

}  // namespace vitrine

// One self-contained HTML page about a training run: summary, curves, where the time and the memory
// go, the timeline of all ranks, samples. Works from a file, without a network.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/memory_ledger.h"
#include "metrics/metrics_reader.h"
#include "timeline/timeline.h"

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
  MetricsTable metrics;                // empty: no curves
  const Timeline* timeline = nullptr;  // null: no breakdown and no timeline
  std::vector<RankMemory> memory;      // empty: the peaks are those of the timeline's samples
  int64_t memory_capacity_bytes = 0;   // of one rank; 0 = unknown
  std::vector<std::pair<std::string, std::string>> images;  // (title, path) of GIF or PNG files
  std::vector<std::string> warnings;
  std::string footer;  // program version, machine, date
  // Larger timelines are shown by their first spans, with a warning on the page.
  size_t max_spans = 200000;
};

// Written beside `path` and renamed. An unreadable picture becomes a warning on the page. Throws
// IoError.
void write_report(const ReportInput& input, const std::string& path);

}  // namespace vitrine

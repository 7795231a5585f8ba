// One line a rank, table or log.
#include "report/facts_text.h"

#include <algorithm>
#include <map>

#include "core/format.h"
#include "report/roofline.h"
#include "report/text_lines.h"

namespace vitrine {
namespace {

constexpr size_t kShownRanks = 4, kShownParts = 4;

std::string bytes(int64_t count) { return format_bytes(static_cast<double>(count)); }

// "activations 17.5 GiB, workspace 7.80 GiB": the largest parts of the peak.
std::string parts_of(const MemoryFacts& memory) {
  std::vector<std::pair<int64_t, std::string>> parts;
  for (int c = 0; c < kMemoryCategories; ++c) {
    const int64_t part = memory.at_peak.by_category[static_cast<size_t>(c)];
    if (part > 0) parts.emplace_back(part, memory_category_name(static_cast<MemoryCategory>(c)));
  }
  if (memory.at_peak.unknown > 0) parts.emplace_back(memory.at_peak.unknown, "unknown");
  std::sort(parts.rbegin(), parts.rend());
  std::vector<std::string> words;
  for (size_t i = 0; i < std::min(parts.size(), kShownParts); ++i) {
    words.push_back(parts[i].second + " " + bytes(parts[i].first));
  }
  return join(words, ", ");
}

std::string memory_line(const MemoryFacts& memory) {
  std::string line = "peak " + bytes(memory.peak_allocated) + " allocated";
  if (memory.peak_reserved > 0) line += ", " + bytes(memory.peak_reserved) + " reserved";
  if (memory.capacity > 0) line += ", of a card of " + bytes(memory.capacity);
  line += " (" + memory.source + ")";
  if (memory.category_known) line += "; at the peak: " + parts_of(memory);
  if (memory.fragmentation > 0) line += "; lost to fragments: " + bytes(memory.fragmentation);
  if (!memory.holders.empty()) {
    line += "; largest holder: " + memory.holders.front().what + " " +
            bytes(memory.holders.front().bytes);
  }
  if (memory.starts_mid_run) line += "; the history begins in the middle of the run";
  return line;
}

void write_memory(const JobFacts& job, std::string& out) {
  std::vector<const RankFacts*> ranks;
  for (const RankFacts& rank : job.ranks) {
    if (rank.memory.known) ranks.push_back(&rank);
  }
  std::stable_sort(ranks.begin(), ranks.end(), [](const RankFacts* a, const RankFacts* b) {
    return a->memory.peak_allocated > b->memory.peak_allocated;
  });
  if (ranks.empty() && job.loose_memory.empty()) return;
  out += "\nmemory\n";
  for (size_t i = 0; i < std::min(ranks.size(), kShownRanks); ++i) {
    append_lines(out, "  - ", format("rank %d: ", ranks[i]->rank) + memory_line(ranks[i]->memory));
  }
  if (ranks.size() > kShownRanks) {
    out += "  - ... and " + counted(ranks.size() - kShownRanks, "rank") + " with less\n";
  }
  for (const MemoryFacts& memory : job.loose_memory) {
    append_lines(out,
                 "  - ",
                 "a snapshot of no rank that was read: " +
                     (memory.known ? memory_line(memory) : join(memory.notes, "; ")));
  }
}

void write_links(const Topology& topology, std::string& out) {
  std::vector<std::string> islands;
  for (const auto& island : topology.nvlink_islands()) {
    std::vector<std::string> cards;
    for (const int32_t card : island) cards.push_back(std::to_string(card));
    islands.push_back("{" + join(cards, " ") + "}");
  }
  append_lines(out,
               "  - ",
               topology.source + ": " + counted(topology.gpus.size(), "card") + ", " +
                   counted(topology.nics.size(), "network card") +
                   ", islands of NVLink: " + join(islands, " "));
}

void write_nccl(const NcclFacts& nccl, std::string& out) {
  std::map<std::string, size_t> transports;
  for (const auto& channel : nccl.channels) {
    ++transports[channel.transport.substr(0, channel.transport.find('/'))];
  }
  std::string line = nccl.source + ": NCCL " + (nccl.version.empty() ? "?" : nccl.version);
  if (!nccl.hosts.empty()) line += ", " + counted(nccl.hosts.size(), "host");
  for (const auto& [transport, count] : transports) {
    line += ", " + counted(count, "connection") + " over " + transport;
  }
  if (!nccl.network.empty()) line += ", network " + nccl.network;
  for (const auto& [name, value] : nccl.environment) line += ", " + name + "=" + value;
  append_lines(out, "  - ", line);
  for (const std::string& problem : nccl.problems) append_lines(out, "  - NCCL: ", problem);
}

void write_arithmetic(const JobFacts& job, std::string& out) {
  size_t shown = 0;
  for (const RankFacts& rank : job.ranks) {
    const auto used = utilisation(rank);
    if (!used || shown++ >= kShownRanks) continue;
    if (shown == 1) out += "\narithmetic\n";
    append_lines(out,
                 "  - ",
                 format("rank %d: %sFLOP/s, %.1f %% of the %s (%.0f %% of the matrix products have "
                        "recorded shapes; recomputation counts)",
                        rank.rank,
                        format_count(used->flops_per_s).c_str(),
                        100 * used->share(),
                        used->peak.c_str(),
                        100 * used->covered));
  }
  if (shown > 0 || job.ranks.empty() || !job.ranks.front().device_work) return;
  out += "\n";
  append_lines(
      out, "", "arithmetic: not known (record_shapes=True tells it, on cards that are listed)");
}

}  // namespace

std::string counted(size_t count, const char* noun) {
  return format("%zu %s%s", count, noun, count == 1 ? "" : "s");
}

void write_facts(const JobFacts& job, std::string& out) {
  write_arithmetic(job, out);
  write_memory(job, out);
  if (job.topologies.empty() && job.nccl.empty()) return;
  out += "\nlinks\n";
  for (const Topology& topology : job.topologies) write_links(topology, out);
  for (const NcclFacts& nccl : job.nccl) write_nccl(nccl, out);
}

}  // namespace vitrine

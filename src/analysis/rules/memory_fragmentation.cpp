// Rule: memory that the allocator holds and can't give out.
#include "analysis/rules/job_view.h"
#include "analysis/rules/rules.h"
#include "core/format.h"

namespace vitrine::rules {
namespace {

// The caching allocator keeps some slack in any run; a fifth of what is reserved is more than its
// rounding explains, and under a GiB nobody misses it.
constexpr double kLost = 0.2;
constexpr int64_t kLeast = int64_t{1} << 30;

void judge(const MemoryFacts& memory, int32_t rank, RuleOutput& out) {
  if (!memory.known || memory.peak_reserved <= 0 || memory.fragmentation < kLeast) return;
  const double lost =
      static_cast<double>(memory.fragmentation) / static_cast<double>(memory.peak_reserved);
  if (lost < kLost) return;
  Finding finding;
  finding.rule = "memory_fragmentation";
  if (rank >= 0) finding.ranks = {rank};
  finding.title = "Memory lost to fragments";
  finding.confidence = 0.7;
  // It only hurts where the memory is needed.
  const bool needed = memory.out_of_memory > 0 || memory.retries > 0 ||
                      (memory.capacity > 0 && memory.peak_reserved * 10 > memory.capacity * 8);
  finding.severity = needed ? Severity::kWarning : Severity::kNote;
  finding.summary = format(
      "%s: %s of %s reserved was not in use at the peak (%s)%s.",
      rank >= 0 ? format("rank %d", rank).c_str() : memory.source.c_str(),
      format_bytes(static_cast<double>(memory.fragmentation)).c_str(),
      format_bytes(static_cast<double>(memory.peak_reserved)).c_str(),
      percent(lost).c_str(),
      memory.largest_free_block > 0
          ? ("; largest free block " + format_bytes(static_cast<double>(memory.largest_free_block)))
                .c_str()
          : "");
  finding.evidence.push_back(
      {finding.summary, rank, -1, memory.peak_time_ns, memory.peak_time_ns + 1});
  finding.cause = "Blocks of changing sizes leave holes that no later tensor fits.";
  finding.fix = {
      "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True (before the first allocation)",
      "equal shapes in every step (padding, buckets of lengths)",
      "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:512 or garbage_collection_threshold:0.8 where "
      "segments can't expand"};
  out.findings.push_back(std::move(finding));
}

}  // namespace

void memory_fragmentation(const JobView& view, RuleOutput& out) {
  const JobFacts& job = *view.job;
  for (const RankFacts& rank : job.ranks) judge(rank.memory, rank.rank, out);
  for (const MemoryFacts& memory : job.loose_memory) judge(memory, -1, out);
}

}  // namespace vitrine::rules

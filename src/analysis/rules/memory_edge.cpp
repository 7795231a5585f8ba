// Rule: memory almost full, or run out of.
#include <algorithm>

#include "analysis/rules/job_view.h"
#include "analysis/rules/rules.h"
#include "core/format.h"

namespace vitrine::rules {
namespace {

// NCCL's buffers, the CUDA context and libraries take one to three GiB beside the allocator: under
// a twelfth of an 80 GB card.
constexpr double kEdge = 0.92;

void judge(const MemoryFacts& memory, int32_t rank, RuleOutput& out) {
  if (!memory.known) return;
  const double used = memory.capacity > 0
                          ? static_cast<double>(memory.peak_reserved > 0 ? memory.peak_reserved
                                                                         : memory.peak_allocated) /
                                static_cast<double>(memory.capacity)
                          : 0;
  if (memory.out_of_memory == 0 && memory.retries == 0 && used < kEdge) return;
  const std::string who = rank >= 0 ? format("rank %d", rank) : memory.source;
  Finding finding;
  finding.rule = "memory_edge";
  if (rank >= 0) finding.ranks = {rank};
  finding.severity = memory.out_of_memory > 0 ? Severity::kCritical : Severity::kWarning;
  finding.confidence = 0.95;
  finding.title = memory.out_of_memory > 0 ? "Out of memory"
                  : memory.retries > 0     ? "Allocator had to empty its cache"
                                           : "Memory near the edge";
  finding.summary = format("%s: peak %s allocated, %s reserved",
                           who.c_str(),
                           format_bytes(static_cast<double>(memory.peak_allocated)).c_str(),
                           format_bytes(static_cast<double>(memory.peak_reserved)).c_str());
  if (memory.capacity > 0) {
    finding.summary += format(" of %s (%s)",
                              format_bytes(static_cast<double>(memory.capacity)).c_str(),
                              percent(used).c_str());
  }
  finding.summary += format("; %lld out-of-memory, %lld retries.",
                            static_cast<long long>(memory.out_of_memory),
                            static_cast<long long>(memory.retries));
  finding.evidence.push_back(
      {"peak of " + who, rank, -1, memory.peak_time_ns, memory.peak_time_ns + 1});
  for (size_t i = 0; i < std::min<size_t>(3, memory.holders.size()); ++i) {
    finding.evidence.push_back(
        {format("held at the peak: %s by %s (%s)",
                format_bytes(static_cast<double>(memory.holders[i].bytes)).c_str(),
                memory.holders[i].what.c_str(),
                memory.holders[i].category.c_str()),
         rank});
  }
  finding.cause = "Parameters, gradients, optimizer state and activations leave no room.";
  finding.fix = {
      "recompute activations (torch.utils.checkpoint; DeepSpeed and Vitrine: "
      "\"activation_checkpointing\") or smaller micro-batches with more accumulation "
      "(\"gradient_accumulation_steps\")",
      "shard more: fully_shard (FSDP2); DeepSpeed and Vitrine: \"zero_optimization\": "
      "{\"stage\": 2 or 3}",
      "offload the optimizer: DeepSpeed offload_optimizer, FSDP2 CPUOffloadPolicy"};
  out.findings.push_back(std::move(finding));
}

}  // namespace

void memory_edge(const JobView& view, RuleOutput& out) {
  const JobFacts& job = *view.job;
  bool any = false, capacity = false;
  for (const RankFacts& rank : job.ranks) {
    judge(rank.memory, rank.rank, out);
    any = any || rank.memory.known;
    capacity = capacity || (rank.memory.known && rank.memory.capacity > 0);
  }
  for (const MemoryFacts& memory : job.loose_memory) {
    judge(memory, -1, out);
    any = any || memory.known;
    capacity = capacity || (memory.known && memory.capacity > 0);
  }
  if (!any && !job.ranks.empty()) {
    out.abstained.push_back(
        "memory_edge: no memory was recorded (profile_memory=True, or "
        "torch.cuda.memory._record_memory_history)");
  } else if (any && !capacity) {
    out.abstained.push_back("memory_edge: the card's capacity is not known");
  }
}

}  // namespace vitrine::rules

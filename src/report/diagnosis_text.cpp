// A diagnosis as text for logs.
#include "report/diagnosis_text.h"

#include <algorithm>

#include "core/format.h"
#include "report/facts_text.h"
#include "report/job_warnings.h"
#include "report/path_text.h"
#include "report/text_lines.h"

namespace vitrine {
namespace {

// Longer lists are for the page and the JSON.
constexpr size_t kShownRanks = 16, kShownEvidence = 6, kShownWarnings = 8;

std::string share_of(int64_t part, int64_t whole) {
  return format("%5.1f %%",
                whole > 0 ? 100 * static_cast<double>(part) / static_cast<double>(whole) : 0.0);
}

void write_head(const JobFacts& job, std::string& out) {
  size_t steps = 0, on_device = 0;
  for (const RankFacts& rank : job.ranks) {
    steps = std::max(steps, rank.steps.size());
    on_device += rank.device_work;
  }
  std::string read;
  if (!job.ranks.empty()) {
    read = format("%zu of %s", job.ranks.size(), counted(size_t(job.world_size), "rank").c_str());
    const RankFacts& first = job.ranks.front();
    if (!first.origin.empty()) read += ", " + first.origin;
    if (!first.device.empty()) read += ", " + first.device;
    read += ", " + counted(steps, "step");
    if (on_device < job.ranks.size()) read += format(", %zu ranks with device work", on_device);
  }
  const auto also = [&read](size_t count, const char* noun) {
    if (count > 0) read += (read.empty() ? "" : ", ") + counted(count, noun);
  };
  also(job.nccl.size(), "NCCL log");
  also(job.topologies.size(), "link table");
  also(job.loose_memory.size(), "memory snapshot");
  append_lines(out, "read:    ", read);
  const LayoutFacts& layout = job.layout;
  if (layout.known && job.world_size > 1) {
    append_lines(out,
                 "layout:  ",
                 format("data %d%s, tensor %d, pipeline %d, expert %d, context %d (%s)",
                        layout.data,
                        layout.data_sharded ? " sharded" : "",
                        layout.tensor,
                        layout.pipeline,
                        layout.expert,
                        layout.context,
                        layout.confidence.c_str()));
  }
}

void write_split(const JobFacts& job, std::string& out) {
  if (job.ranks.empty()) return;
  out +=
      "\n  rank       window   compute   exposed comm   exposed copies      idle   comm hidden\n";
  size_t shown = 0;
  for (const RankFacts& rank : job.ranks) {
    if (shown++ == kShownRanks) {
      out += format("  ... and %zu more ranks\n", job.ranks.size() - kShownRanks);
      break;
    }
    const Breakdown& time = rank.total;
    out +=
        format("  %4d   %10s   %s        %s          %s   %s       %s\n",
               rank.rank,
               format_ns(static_cast<double>(time.span_ns)).c_str(),
               share_of(time.compute_ns, time.span_ns).c_str(),
               share_of(time.exposed_communication_ns, time.span_ns).c_str(),
               share_of(time.exposed_copy_ns, time.span_ns).c_str(),
               share_of(time.idle_ns, time.span_ns).c_str(),
               time.communication_ns > 0 ? share_of(time.overlap_ns, time.communication_ns).c_str()
                                         : "no comm");
  }
}

std::string cost_of(const Finding& finding, bool per_step) {
  if (finding.cost_ns <= 0) return "";
  return format("%s, %.1f %% of the %s",
                format_ns(static_cast<double>(finding.cost_ns)).c_str(),
                finding.share * 100,
                per_step ? "step" : "trace");
}

void write_finding(const Finding& finding, bool per_step, size_t number, std::string& out) {
  std::string title = finding.title + " [" + finding.rule + "], " + severity_name(finding.severity);
  if (const std::string cost = cost_of(finding, per_step); !cost.empty()) title += ": " + cost;
  title += format(" (confidence %.0f %%)", finding.confidence * 100);
  out += "\n";
  append_lines(out, format("%2zu. ", number), title);
  append_lines(out, "    ", finding.summary);
  if (!finding.cause.empty()) append_lines(out, "    why:  ", finding.cause);
  for (size_t i = 0; i < std::min(finding.evidence.size(), kShownEvidence); ++i) {
    append_lines(out, i == 0 ? "    seen: " : "          ", finding.evidence[i].text);
  }
  for (size_t i = 0; i < finding.fix.size(); ++i) {
    append_lines(out, i == 0 ? "    fix:  - " : "          - ", finding.fix[i]);
  }
  if (!finding.gain.empty()) append_lines(out, "    gain: ", finding.gain);
}

void write_list(const char* title,
                const std::vector<std::string>& lines,
                size_t most,
                std::string& out) {
  if (lines.empty()) return;
  out += std::string("\n") + title + "\n";
  for (size_t i = 0; i < std::min(lines.size(), most); ++i) append_lines(out, "  - ", lines[i]);
  if (lines.size() > most) out += format("  - ... and %zu more\n", lines.size() - most);
}

}  // namespace

std::string diagnosis_text(const JobFacts& job, const Diagnosis& diagnosis) {
  std::string out;
  append_lines(out, "verdict: ", diagnosis.verdict);
  write_head(job, out);
  write_split(job, out);
  size_t number = 0;
  std::vector<std::string> notes;
  for (const Finding& finding : diagnosis.findings) {
    if (finding.severity != Severity::kNote) {
      write_finding(finding, diagnosis.per_step, ++number, out);
      continue;
    }
    std::string note = finding.title + " [" + finding.rule + "]";
    if (const std::string cost = cost_of(finding, diagnosis.per_step); !cost.empty())
      note += ", " + cost;
    notes.push_back(note + ": " + finding.summary);
  }
  write_list("notes", notes, notes.size(), out);
  write_path(job, out);
  write_facts(job, out);
  write_list("not judged", diagnosis.abstained, diagnosis.abstained.size(), out);
  write_list("warnings", job_warnings(job), kShownWarnings, out);
  return out;
}

}  // namespace vitrine

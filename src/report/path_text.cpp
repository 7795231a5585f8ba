// A few lines: what the longest chain is made of, what would shorten it, what was inferred.
#include "report/path_text.h"

#include <algorithm>

#include "core/format.h"
#include "report/text_lines.h"

namespace vitrine {
namespace {

// Less than this of the path is not worth a word.
constexpr double kLeastShare = 0.005;

std::string ns_text(int64_t ns) { return format_ns(static_cast<double>(ns)); }
double share(int64_t part, const PathFacts& path) {
  return static_cast<double>(part) / static_cast<double>(path.span_ns());
}

std::string parts_of(const PathFacts& path) {
  std::vector<std::pair<int64_t, PathPart>> parts;
  for (int i = 0; i < kPathParts; ++i) {
    const int64_t ns = path.part_ns[static_cast<size_t>(i)];
    if (share(ns, path) >= kLeastShare) parts.emplace_back(ns, static_cast<PathPart>(i));
  }
  std::sort(parts.rbegin(), parts.rend());
  std::vector<std::string> words;
  for (const auto& [ns, part] : parts) {
    words.push_back(format("%s %s (%.1f %%)",
                           path_part_name(part),
                           ns_text(path.per_step(ns)).c_str(),
                           100 * share(ns, path)));
  }
  return join(words, ", ");
}

void write_answers(const PathFacts& path, std::string& out) {
  std::vector<std::string> nothing, unknown;
  for (const WhatIf& one : path.what_if) {
    const std::string name = what_if_name(one);
    if (one.span_ns < 0) {
      unknown.push_back(name + " (" + one.unknown + ")");
    } else if (share(path.span_ns() - one.span_ns, path) < kLeastShare) {
      nothing.push_back(name);
    } else {
      const double faster = static_cast<double>(path.span_ns()) /
                            static_cast<double>(std::max<int64_t>(1, one.span_ns));
      out += format("  %-34s %10s   %.2fx\n",
                    name.c_str(),
                    ns_text(path.per_step(one.span_ns)).c_str(),
                    faster);
    }
  }
  if (!nothing.empty()) append_lines(out, "  no shorter: ", join(nothing, ", "));
  if (!unknown.empty()) append_lines(out, "  not known: ", join(unknown, ", "));
}

}  // namespace

const RankFacts* bounding_rank(const JobFacts& job) {
  const RankFacts* out = nullptr;
  for (const RankFacts& rank : job.ranks) {
    const PathFacts& path = rank.critical_path;
    if (!path.known()) continue;
    if (out == nullptr ||
        path.per_step(path.span_ns()) > out->critical_path.per_step(out->critical_path.span_ns())) {
      out = &rank;
    }
  }
  return out;
}

std::string path_window(const PathFacts& path) {
  if (path.steps == 0) return "the whole trace";
  if (path.steps == 1) return format("step %d", path.first_step);
  return format("steps %d to %d", path.first_step, path.last_step);
}

void write_path(const JobFacts& job, std::string& out) {
  const RankFacts* rank = bounding_rank(job);
  if (rank == nullptr) return;
  const PathFacts& path = rank->critical_path;
  out += "\n";
  append_lines(out,
               "",
               format("what would make %s shorter: rank %d, %s, now %s%s",
                      path.steps > 0 ? "the step" : "it",
                      rank->rank,
                      path_window(path).c_str(),
                      ns_text(path.per_step(path.span_ns())).c_str(),
                      path.steps > 1 ? " a step" : ""));
  append_lines(out, "  critical path: ", parts_of(path));
  write_answers(path, out);
  append_lines(out, "  inferred: ", join(path.inferred, "; "));
}

}  // namespace vitrine

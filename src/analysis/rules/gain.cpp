// Choosing the rank that speaks for the job, and its answer in words.
#include "analysis/rules/gain.h"

#include <algorithm>

#include "core/format.h"

namespace vitrine {
namespace {

// Less than this is no difference that two runs would show.
constexpr double kLeastGain = 0.005;

const WhatIf* answer_of(const PathFacts& path, Change change, KernelClass kind) {
  for (const WhatIf& one : path.what_if) {
    if (one.change == change && one.kind == kind && one.span_ns >= 0) return &one;
  }
  return nullptr;
}

}  // namespace

std::string predicted(const JobView& view, Change change, KernelClass kind) {
  const RankView* best = nullptr;
  const WhatIf* answer = nullptr;
  int64_t most = 0;
  for (const RankView& rank : view.ranks) {
    const PathFacts& path = rank.facts->critical_path;
    const WhatIf* own = path.known() ? answer_of(path, change, kind) : nullptr;
    if (own == nullptr) continue;
    const int64_t weight = path.per_step(
        change == Change::kNoWaiting ? path.span_ns() - own->span_ns : path.span_ns());
    if (best == nullptr || weight > most) best = &rank, answer = own, most = weight;
  }
  if (best == nullptr) return "";
  const PathFacts& path = best->facts->critical_path;
  const int64_t now = path.per_step(path.span_ns()), then = path.per_step(answer->span_ns);
  const std::string whose =
      format("; by the dependencies of rank %d (%s) ", best->rank, what_if_name(*answer).c_str());
  const std::string what = path.steps > 0 ? "a step" : "the trace";
  if (static_cast<double>(now - then) < kLeastGain * static_cast<double>(now)) {
    return whose + what + " would be no shorter: something else bounds it";
  }
  return whose + format("%s of %s would take %s, %.2fx",
                        what.c_str(),
                        format_ns(static_cast<double>(now)).c_str(),
                        format_ns(static_cast<double>(then)).c_str(),
                        static_cast<double>(now) / static_cast<double>(std::max<int64_t>(1, then)));
}

}  // namespace vitrine

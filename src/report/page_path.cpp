// What bounds each rank's steps and what would make them shorter.
#include "report/page_parts.h"
#include "report/path_text.h"

namespace vitrine {
namespace {

Json path_json(const RankFacts& rank) {
  const PathFacts& path = rank.critical_path;
  Json parts = Json::array(), answers = Json::array();
  for (int i = 0; i < kPathParts; ++i) {
    const int64_t ns = path.part_ns[static_cast<size_t>(i)];
    if (ns > 0) parts.push_back({path_part_name(static_cast<PathPart>(i)), path.per_step(ns)});
  }
  for (const WhatIf& one : path.what_if) {
    answers.push_back({{"change", what_if_name(one)},
                       {"step", one.span_ns < 0 ? Json() : Json(path.per_step(one.span_ns))},
                       {"unknown", one.unknown}});
  }
  return {{"rank", rank.rank},
          {"window", path_window(path)},
          {"per_step", path.steps > 0},
          {"step", path.per_step(path.span_ns())},
          {"parts", std::move(parts)},
          {"what_if", std::move(answers)},
          {"inferred", path.inferred}};
}

}  // namespace

// The rank that bounds the job comes first.
Json paths_json(const JobFacts& job) {
  Json out = Json::array();
  const RankFacts* bounding = bounding_rank(job);
  if (bounding != nullptr) out.push_back(path_json(*bounding));
  for (const RankFacts& rank : job.ranks) {
    if (&rank != bounding && rank.critical_path.known()) out.push_back(path_json(rank));
  }
  return out;
}

}  // namespace vitrine

// The sections of the page's data, joined.
#include "report/report_data.h"

#include <algorithm>
#include <set>

#include "core/error.h"
#include "core/format.h"
#include "report/image.h"
#include "report/job_warnings.h"
#include "report/page_parts.h"

namespace vitrine {

namespace {

Json metrics_json(const MetricsTable& table) {
  Json columns = Json::array();
  for (const auto& [name, values] : table.columns) {
    columns.push_back({{"name", name}, {"values", values}});  // NaN is dumped as null
  }
  return {{"steps", table.steps}, {"columns", std::move(columns)}};
}

Json timeline_json(const ReportInput& input, const PageClock& clock) {
  Json kinds = Json::array(), ranks = Json::array();
  for (int kind = 0; kind <= static_cast<int>(SpanKind::kStep); ++kind) {
    kinds.push_back(span_kind_name(static_cast<SpanKind>(kind)));
  }
  for (const TimelineBlob& blob : input.timelines) {
    ranks.push_back({{"rank", blob.rank},
                     {"begin", clock.at(blob.rank, blob.begin_ns)},
                     {"shown", blob.spans_shown},
                     {"total", blob.spans_total},
                     {"host_under", blob.host_under_ns},
                     {"device_under", blob.device_under_ns},
                     {"kinds", blob.kinds}});
  }
  return {{"kinds", std::move(kinds)}, {"end", clock.end_ns()}, {"ranks", std::move(ranks)}};
}

Json images_json(const ReportInput& input, Json& warnings) {
  Json images = Json::array();
  for (const auto& [title, path] : input.images) {
    try {
      images.push_back({{"title", title}, {"uri", image_data_uri(path)}});
    } catch (const Error& error) {
      warnings.push_back("A picture is left out: " + std::string(error.what()));
    }
  }
  return images;
}

// What is not known and why, each once.
Json unknown_json(const JobFacts& job) {
  std::set<std::string> seen;
  Json out = Json::array();
  for (const RankFacts& rank : job.ranks) {
    for (const auto& note : rank.notes) {
      if (seen.insert(note).second) out.push_back(note);
    }
  }
  return out;
}

}  // namespace

Json report_data(const ReportInput& input) {
  const PageClock clock(input);
  Json facts = Json::array(), warnings = Json::array();
  for (const auto& [label, value] : input.facts) facts.push_back({label, value});
  for (const auto& text : input.warnings) warnings.push_back(text);
  Json images = images_json(input, warnings);
  Json out = {{"title", input.title},
              {"subtitle", input.subtitle},
              {"footer", input.footer},
              {"facts", std::move(facts)},
              {"cards", cards_json(input)},
              {"images", std::move(images)},
              {"metrics", metrics_json(input.metrics)},
              {"memory", memory_json(input, clock)},
              {"timeline", timeline_json(input, clock)},
              {"diagnosis", nullptr},
              {"job", nullptr}};
  if (!input.plan.empty()) out["plan"] = parse_json(input.plan, "plan");
  if (input.diagnosis != nullptr) {
    out["diagnosis"] = {{"verdict", input.diagnosis->verdict},
                        {"per_step", input.diagnosis->per_step},
                        {"abstained", input.diagnosis->abstained},
                        {"findings", findings_json(*input.diagnosis, clock)}};
  }
  if (input.job != nullptr) {
    const JobFacts& job = *input.job;
    for (const std::string& text : job_warnings(job)) warnings.push_back(text);
    out["job"] = {{"world_size", job.world_size},
                  {"ranks", ranks_json(job)},
                  {"time", time_json(job, clock)},
                  {"unknown", unknown_json(job)},
                  {"stragglers", stragglers_json(job.straggler)},
                  {"outliers", outliers_json(job, clock)},
                  {"communication", communication_json(job, clock)},
                  {"topologies", topologies_json(job)},
                  {"pipeline", job.pipeline ? pipeline_json(*job.pipeline, clock) : Json()},
                  {"paths", paths_json(job)},
                  {"tables", tables_json(job, clock)}};
  }
  out["warnings"] = std::move(warnings);
  return out;
}

}  // namespace vitrine

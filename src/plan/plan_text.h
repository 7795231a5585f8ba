// Predictions and searches as text and as JSON (docs/formats/plan.md).
#pragma once

#include <string>
#include <vector>

#include "core/json_fwd.h"
#include "plan/advice.h"
#include "plan/search.h"

namespace vitrine {

// A job as it was asked for, with what was assumed.
struct PlanJob {
  ModelShape model;
  Cluster cluster;
  ClusterStrategy strategy;
  std::vector<std::string> assumed;  // one sentence each
  double price_per_hour = 0;         // a card; 0: not known
  double tokens = 1e9;               // to be trained on, for the cost
};

// Cost of job.tokens tokens at the predicted speed.
struct PlanCost {
  double gpu_hours = 0, hours = 0, money = 0;
};
PlanCost plan_cost(const PlanJob& job, const Prediction& prediction);

// Lines of at most 100 characters.
std::string job_text(const PlanJob& job);
std::string prediction_text(const PlanJob& job, const Prediction& prediction);
std::string changes_text(const Prediction& before, const std::vector<Change>& changes, size_t most);
std::string search_text(const SearchResult& result);

Json job_json(const PlanJob& job);
Json prediction_json(const PlanJob& job, const Prediction& prediction);
Json changes_json(const std::vector<Change>& changes);
Json search_json(const SearchResult& result);

}  // namespace vitrine

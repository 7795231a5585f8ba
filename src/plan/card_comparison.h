// The same job on several cards: what it costs on each, which limit binds, which tasks suit which.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/json_fwd.h"
#include "plan/plan_text.h"

namespace vitrine {

// How a card does at one of the usual tasks.
struct TaskFit {
  std::string task;  // "fine-tuning 8B on one node"
  bool possible = false;
  double card_hours = 0;  // of the task's tokens, both as predicted; 0: not possible
  std::string note;       // the strategy, or why not
};

struct CardResult {
  std::string card;
  PlanJob job;  // with the best strategy
  bool fits = false;
  Prediction prediction;  // where it fits
  PlanCost cost;
  std::string limit;  // which limit binds
  std::vector<TaskFit> tasks;
};

// `job.strategy` as a search holds it (space.base); each card is searched with the same batch and
// sequence on as many cards as `job.cluster` has. Precisions that a card lacks fall back to the
// next that it has. `make` gives so many of a card, with the topology, profile and software that
// are wanted. Throws ConfigError for unknown cards.
using MakeCluster = std::function<Cluster(int gpus, const std::string& card)>;
std::vector<CardResult> compare_cards(const PlanJob& job,
                                      const SearchSpace& space,
                                      const std::vector<std::string>& cards,
                                      const MakeCluster& make);

std::string cards_text(const std::vector<CardResult>& results);
Json cards_json(const std::vector<CardResult>& results);

}  // namespace vitrine

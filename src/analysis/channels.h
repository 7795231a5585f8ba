// The calls of a job, sorted by communicator: what matching lines up.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/rank_facts.h"

namespace vitrine {

// One rank's calls of one communicator, by start.
struct UseStream {
  int32_t rank_index = -1;    // into the ranks
  std::vector<int32_t> uses;  // into RankFacts::collectives
};

struct Channel {
  std::string group;           // name in the first rank's trace; "" = not known
  std::vector<int32_t> ranks;  // global; empty when not known
  int32_t size = 0;            // of the group; 0 = not known
  bool known = false;          // the trace names the group
  // Of a link between two ranks: global ranks; else -1. One-way; or an exchange (one kernel that
  // sends and receives), then in ascending order.
  int32_t source = -1, destination = -1;
  bool exchange = false;
  std::vector<UseStream> streams;  // by rank_index
};

// Every call is in one channel. A rank's groups with the same ranks are told apart by name where
// all their ranks know that name, else by their order. Two members of a group may know it under
// different names.
std::vector<Channel> channels(const std::vector<RankFacts>& ranks);

}  // namespace vitrine

// Follows each wait to the rank that caused it.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "analysis/job_facts.h"

namespace vitrine {

// Of one collective: who is to blame for its members' waits.
struct Blame {
  int32_t collective = -1;  // into the collectives
  bool message = false;     // between two ranks
  int64_t longest_wait_ns = 0;
  // (rank index blamed, member's rank index, exposed ns)
  struct Part {
    int32_t blamed, waiting;
    int64_t exposed_ns;
  };
  std::vector<Part> parts;
  int32_t most = -1;  // rank index with most of the blame, hidden waits too; -1: nobody waited
};

// One entry a collective, in the order of their latest arrivals.
std::vector<Blame> follow_waits(size_t ranks, const std::vector<MatchedCollective>& collectives);

}  // namespace vitrine

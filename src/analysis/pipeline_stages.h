// Which rank is which stage of a pipeline, from the messages between single ranks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "analysis/rank_facts.h"

namespace vitrine {

// A message of one rank with a neighbour, and what it carries. An exchange is two of them.
struct StageMessage {
  int32_t use = -1;  // into RankFacts::collectives
  int32_t step = -1;
  bool forward = true;  // activations; else gradients
  bool send = true;
  bool exchange = false;  // the same kernel also does the other direction
};

struct StageMap {
  int32_t stages = 0;
  int32_t chunks = 1;                // parts of the model per stage; more than one: interleaved
  std::vector<int32_t> stage_of;     // by rank index; -1: not part of the pipeline
  std::map<int32_t, int32_t> stage;  // by global rank, also of ranks that were not read
  std::vector<std::vector<StageMessage>> messages;  // by rank index, by start
};

// The first piece of a rank's work that begins at `time` or later.
inline std::vector<WorkPiece>::const_iterator first_work(const RankFacts& rank, int64_t time) {
  return std::lower_bound(
      rank.work.begin(), rank.work.end(), time, [](const WorkPiece& piece, int64_t t) {
        return piece.begin_ns < t;
      });
}

// Messages of one rank by step, in order.
std::map<int32_t, std::vector<StageMessage>> messages_by_step(
    const std::vector<StageMessage>& messages);

// A step begins with forward: of two ranks that exchange messages, the one whose first message of
// most steps is a send is the earlier stage. Stages are counted from the ranks that only send
// first. Nothing when no rank sends first (rings of context parallelism exchange with both sides at
// once), or when there are no messages with a known peer.
std::optional<StageMap> find_stages(const std::vector<RankFacts>& ranks);

}  // namespace vitrine

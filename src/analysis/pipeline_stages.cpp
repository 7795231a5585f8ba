// Orients the links between ranks, then walks them from the first stage.
#include "analysis/pipeline_stages.h"

#include <algorithm>
#include <set>
#include <utility>

namespace vitrine {
namespace {

bool is_message(const CollectiveUse& use) {
  return use.peer >= 0 &&
         (use.name == "send" || use.name == "receive" || use.name == "send_receive");
}

// (a, b) with a < b -> votes that a is the earlier stage, less votes that b is.
using Votes = std::map<std::pair<int32_t, int32_t>, int64_t>;

Votes first_messages(const std::vector<RankFacts>& ranks) {
  Votes votes;
  for (const RankFacts& rank : ranks) {
    std::set<std::pair<int32_t, int32_t>> seen;  // (peer, step)
    for (const CollectiveUse& use : rank.collectives) {
      if (!is_message(use) || use.peer == rank.rank) continue;
      if (!seen.insert({use.peer, use.step}).second) continue;
      const auto pair = std::minmax(rank.rank, use.peer);
      int64_t& vote = votes[{pair.first, pair.second}];
      if (use.name == "send_receive") continue;
      const bool lower_sends = (use.name == "send") == (rank.rank < use.peer);
      vote += lower_sends ? 1 : -1;
    }
  }
  return votes;
}

// Ranks whose first message of most steps is a send.
std::set<int32_t> first_stages(const std::vector<RankFacts>& ranks) {
  std::set<int32_t> result;
  for (const RankFacts& rank : ranks) {
    std::set<int32_t> seen;
    int64_t sends = 0, others = 0;
    for (const CollectiveUse& use : rank.collectives) {
      if (!is_message(use) || !seen.insert(use.step).second) continue;
      ++(use.name == "send" ? sends : others);
    }
    if (sends > others) result.insert(rank.rank);
  }
  return result;
}

using Links = std::map<int32_t, std::set<int32_t>>;  // rank -> ranks of the next stage

void walk(const Links& links, const std::set<int32_t>& firsts, StageMap& map) {
  std::vector<int32_t> frontier(firsts.begin(), firsts.end());
  for (const int32_t rank : frontier) map.stage[rank] = 0;
  for (int32_t depth = 1; !frontier.empty(); ++depth) {
    std::vector<int32_t> next;
    for (const int32_t rank : frontier) {
      const auto found = links.find(rank);
      if (found == links.end()) continue;
      for (const int32_t other : found->second) {
        if (map.stage.emplace(other, depth).second) next.push_back(other);
      }
    }
    if (!next.empty()) map.stages = depth + 1;
    frontier = std::move(next);
  }
}

class Reader {
 public:
  Reader(const std::vector<RankFacts>& ranks, StageMap& map) : ranks_(ranks), map_(map) {}

  void run() {
    for (const RankFacts& rank : ranks_) {
      const auto found = map_.stage.find(rank.rank);
      map_.stage_of.push_back(found == map_.stage.end() ? -1 : found->second);
      map_.messages.emplace_back();
      if (map_.stage_of.back() >= 0) read(rank, map_.stage_of.back());
    }
    // Forward messages from the last stage to the first carry on to the next chunk.
    const int64_t along = along_ / std::max(1, map_.stages - 1);
    if (wrapped_ > 0 && along > wrapped_) {
      map_.chunks = static_cast<int32_t>((along + (along - wrapped_) / 2) / (along - wrapped_));
    }
  }

 private:
  void read(const RankFacts& rank, int32_t stage) {
    for (size_t i = 0; i < rank.collectives.size(); ++i) {
      const CollectiveUse& use = rank.collectives[i];
      const auto other = is_message(use) ? map_.stage.find(use.peer) : map_.stage.end();
      if (other == map_.stage.end() || other->second == stage) continue;
      const bool wrap = map_.stages > 2 && std::abs(other->second - stage) == map_.stages - 1;
      const bool down = (other->second > stage) != wrap;  // towards the next chunk or stage
      StageMessage message;
      message.use = static_cast<int32_t>(i);
      message.step = use.step;
      message.exchange = use.name == "send_receive";
      for (const bool send : {true, false}) {
        if (!message.exchange && send != (use.name == "send")) continue;
        message.send = send;
        message.forward = send == down;
        // Two stages have one link for both ways round: the sender's phase tells.
        if (map_.stages == 2 && !message.exchange && send && !message.forward &&
            use.phase == Phase::kForward) {
          message.forward = true;
          ++wrapped_;
        } else if (send && message.forward) {
          ++(wrap ? wrapped_ : along_);
        }
        map_.messages.back().push_back(message);
      }
    }
  }

  const std::vector<RankFacts>& ranks_;
  StageMap& map_;
  int64_t along_ = 0, wrapped_ = 0;  // forward sends
};

}  // namespace

std::map<int32_t, std::vector<StageMessage>> messages_by_step(
    const std::vector<StageMessage>& messages) {
  std::map<int32_t, std::vector<StageMessage>> result;
  for (const StageMessage& message : messages) result[message.step].push_back(message);
  return result;
}

std::optional<StageMap> find_stages(const std::vector<RankFacts>& ranks) {
  Links links;
  for (const auto& [pair, vote] : first_messages(ranks)) {
    if (vote > 0) links[pair.first].insert(pair.second);
    if (vote < 0) links[pair.second].insert(pair.first);
  }
  const std::set<int32_t> firsts = first_stages(ranks);
  if (links.empty() || firsts.empty()) return std::nullopt;
  StageMap map;
  walk(links, firsts, map);
  if (map.stages < 2) return std::nullopt;
  Reader(ranks, map).run();
  return map;
}

}  // namespace vitrine

// Finds a key that all members of a communicator agree on.
#include "analysis/channels.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "analysis/collective_shape.h"

namespace vitrine {
namespace {

// Of a call whose group is not recorded: the only group of its lane, -1 when none or several.
std::map<int32_t, int32_t> groups_of_lanes(const RankFacts& rank) {
  std::map<int32_t, int32_t> result;
  for (const CollectiveUse& use : rank.collectives) {
    if (use.group < 0) continue;
    const auto [at, fresh] = result.emplace(use.lane, use.group);
    if (!fresh && at->second != use.group) at->second = -1;
  }
  return result;
}

// (ranks, name) of every group, with the number of read ranks that know it.
using NameUse = std::map<std::pair<std::vector<int32_t>, std::string>, int>;
NameUse count_names(const std::vector<RankFacts>& ranks) {
  NameUse result;
  for (const RankFacts& rank : ranks) {
    std::set<std::pair<std::vector<int32_t>, std::string>> seen;
    for (const GroupUse& group : rank.groups) seen.insert({group.ranks, group.name});
    for (const auto& key : seen) ++result[key];
  }
  return result;
}

struct Key {
  std::vector<int32_t> ranks;
  std::string name;
  int32_t ordinal = -1;
  int32_t source = -1, destination = -1;
  bool exchange = false;
  auto order() const { return std::tie(ranks, name, ordinal, source, destination, exchange); }
  bool operator<(const Key& other) const { return order() < other.order(); }
};

int32_t readers_of(const std::vector<RankFacts>& ranks, const std::vector<int32_t>& members) {
  return static_cast<int32_t>(std::count_if(ranks.begin(), ranks.end(), [&](const RankFacts& r) {
    return std::find(members.begin(), members.end(), r.rank) != members.end();
  }));
}

class Sorter {
 public:
  explicit Sorter(const std::vector<RankFacts>& ranks)
      : ranks_(ranks), names_(count_names(ranks)) {}

  std::vector<Channel> run() {
    for (size_t i = 0; i < ranks_.size(); ++i) add(static_cast<int32_t>(i));
    std::vector<Channel> result;
    for (auto& [key, channel] : channels_) result.push_back(std::move(channel));
    return result;
  }

 private:
  void add(int32_t rank_index) {
    const RankFacts& rank = ranks_[static_cast<size_t>(rank_index)];
    const auto of_lane = groups_of_lanes(rank);
    std::map<int32_t, int32_t> nameless_lanes;  // in order of first use
    // Keys hold lists of ranks: each is made once, not once a call.
    std::map<std::tuple<int32_t, int32_t, int32_t, int32_t>, Channel*> known;
    for (size_t i = 0; i < rank.collectives.size(); ++i) {
      const CollectiveUse& use = rank.collectives[i];
      int32_t group = use.group;
      const auto lane = of_lane.find(use.lane);
      if (group < 0 && lane != of_lane.end()) group = lane->second;
      int32_t ordinal = -1;
      if (group < 0) {
        const auto next = static_cast<int32_t>(nameless_lanes.size());
        ordinal = nameless_lanes.emplace(use.lane, next).first->second;
      }
      const int32_t direction = use.peer < 0 ? 0 : link_kind(use);
      Channel*& channel = known[{group, ordinal, direction == 0 ? -1 : use.peer, direction}];
      if (channel == nullptr) channel = &open(rank, group, ordinal, use);
      if (channel->streams.empty() || channel->streams.back().rank_index != rank_index) {
        channel->streams.push_back({rank_index, {}});
      }
      channel->streams.back().uses.push_back(static_cast<int32_t>(i));
    }
  }

  Channel& open(const RankFacts& rank, int32_t group, int32_t ordinal, const CollectiveUse& use) {
    Key key;
    if (group >= 0) {
      key = group_key(rank, group);
    } else {
      key.ordinal = ordinal;
    }
    add_link(key, rank, use);
    Channel& channel = channels_[key];
    if (!channel.streams.empty()) return channel;
    channel.ranks = key.ranks;
    channel.known = group >= 0;
    if (channel.known) {
      const GroupUse& own = rank.groups[static_cast<size_t>(group)];
      channel.group = own.name;
      channel.size = key.ranks.empty() ? own.size : static_cast<int32_t>(key.ranks.size());
    }
    channel.source = key.source;
    channel.destination = key.destination;
    channel.exchange = key.exchange;
    return channel;
  }

  Key group_key(const RankFacts& rank, int32_t group) const {
    const GroupUse& own = rank.groups[static_cast<size_t>(group)];
    Key key;
    key.ranks = own.ranks;
    const auto known = names_.find({own.ranks, own.name});
    if (own.ranks.empty() || known->second == readers_of(ranks_, own.ranks)) {
      key.name = own.name;
      return key;
    }
    key.ordinal = 0;
    for (int32_t other = 0; other < group; ++other) {
      if (rank.groups[static_cast<size_t>(other)].ranks == own.ranks) ++key.ordinal;
    }
    return key;
  }

  // Of a call with a peer: 1 sends, 2 receives, 3 does both, 0 is a collective after all.
  static int32_t link_kind(const CollectiveUse& use) {
    if (use.name == "send_receive") return 3;
    if (collective_shape(use.name) != CollectiveShape::kPointToPoint) return 0;
    return use.name == "send" ? 1 : 2;
  }

  static void add_link(Key& key, const RankFacts& rank, const CollectiveUse& use) {
    const int32_t kind = use.peer < 0 ? 0 : link_kind(use);
    if (kind == 0) return;
    key.exchange = kind == 3;
    const bool own_first = key.exchange ? rank.rank < use.peer : kind == 1;
    key.source = own_first ? rank.rank : use.peer;
    key.destination = own_first ? use.peer : rank.rank;
  }

  const std::vector<RankFacts>& ranks_;
  const NameUse names_;
  std::map<Key, Channel> channels_;
};

}  // namespace

std::vector<Channel> channels(const std::vector<RankFacts>& ranks) { return Sorter(ranks).run(); }

}  // namespace vitrine

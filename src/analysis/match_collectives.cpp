// Lines up the calls of each communicator and joins those that stand at one place.
#include "analysis/match_collectives.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <tuple>

#include "analysis/align_uses.h"
#include "analysis/channels.h"
#include "analysis/collective_shape.h"
#include "analysis/statistics.h"

namespace vitrine {
namespace {

// Ranks leave a collective within microseconds; this much is allowed for clocks that wander.
constexpr int64_t kTogether_ns = 200'000;

struct Member {
  int32_t rank_index, use;
};

class Matcher {
 public:
  Matcher(const std::vector<RankFacts>& ranks,
          const std::vector<int64_t>& offsets,
          bool same_clock,
          int32_t world_size,
          std::vector<std::string>& warnings)
      : ranks_(ranks),
        offsets_(offsets),
        same_clock_(same_clock),
        world_size_(world_size),
        warnings_(warnings) {}

  std::vector<MatchedCollective> run() {
    for (const Channel& channel : channels(ranks_)) {
      if (channel.streams.size() >= 2) match(channel);
    }
    std::sort(result_.begin(), result_.end(), [](const auto& a, const auto& b) {
      return a.members.front().start_ns < b.members.front().start_ns;
    });
    return std::move(result_);
  }

 private:
  const CollectiveUse& use_of(const Member& member) const {
    return ranks_[static_cast<size_t>(member.rank_index)]
        .collectives[static_cast<size_t>(member.use)];
  }

  std::vector<AlignedUse> aligned(const UseStream& stream) const {
    std::vector<AlignedUse> result;
    result.reserve(stream.uses.size());
    const int64_t offset = offsets_[static_cast<size_t>(stream.rank_index)];
    for (const int32_t use : stream.uses) {
      const CollectiveUse& u = use_of({stream.rank_index, use});
      const int64_t start = u.start_ns + offset;
      result.push_back({u.name, u.bytes, start, start + u.duration_ns, u.sequence, u.step});
    }
    return result;
  }

  static bool one_way(const Channel& channel) { return channel.source >= 0 && !channel.exchange; }

  void match(const Channel& channel) {
    if (channel.size > 0 && static_cast<int32_t>(channel.streams.size()) > channel.size) {
      warnings_.push_back("Group \"" + channel.group + "\" of " + std::to_string(channel.size) +
                          " ranks is used by " + std::to_string(channel.streams.size()) +
                          " of the ranks that were read: one name for several groups, and their "
                          "ranks are not listed; its collectives are not matched.");
      return;
    }
    auto places = one_way(channel) ? link_places(channel) : places_in_order(channel);
    std::vector<std::vector<Member>> joined;
    for (auto& [place, members] : places) {
      if (members.size() >= 2) joined.push_back(std::move(members));
    }
    if (!channel.known && !leave_together(joined)) {
      warnings_.push_back(
          "Communication kernels without a process group do not end together on the ranks: they "
          "are "
          "no collectives of all ranks, and are not matched.");
      return;
    }
    for (const auto& members : joined) emit(channel, members);
  }

  using Places = std::map<int64_t, std::vector<Member>>;

  // Sequence numbers that were recorded go on from before the window; those that a reader counted
  // begin at 0 in every rank.
  static bool sequences_recorded(const std::vector<std::vector<AlignedUse>>& streams) {
    bool any_later = false;
    for (const auto& stream : streams) {
      int64_t last = -1;
      for (const AlignedUse& use : stream) {
        if (use.sequence < 0 || use.sequence <= last) return false;
        last = use.sequence;
      }
      any_later = any_later || (!stream.empty() && stream.front().sequence > 0);
    }
    return any_later;
  }

  Places places_in_order(const Channel& channel) const {
    std::vector<std::vector<AlignedUse>> streams;
    for (const UseStream& stream : channel.streams) streams.push_back(aligned(stream));
    const bool recorded = sequences_recorded(streams);
    size_t longest = 0;
    for (size_t i = 0; i < streams.size(); ++i) {
      if (streams[i].size() > streams[longest].size()) longest = i;
    }
    Places places;
    for (size_t i = 0; i < streams.size(); ++i) {
      std::vector<int64_t> at;
      if (!recorded) at = align_collectives(streams[longest], streams[i], same_clock_);
      for (size_t k = 0; k < streams[i].size(); ++k) {
        const int64_t place = recorded ? streams[i][k].sequence : at[k];
        if (place == kNoPartner) continue;
        places[place].push_back({channel.streams[i].rank_index, channel.streams[i].uses[k]});
      }
    }
    return places;
  }

  Places link_places(const Channel& channel) const {
    Places places;
    const UseStream* sender = nullptr;
    const UseStream* receiver = nullptr;
    for (const UseStream& stream : channel.streams) {
      const int32_t rank = ranks_[static_cast<size_t>(stream.rank_index)].rank;
      if (rank == channel.source) sender = &stream;
      if (rank == channel.destination) receiver = &stream;
    }
    if (sender == nullptr || receiver == nullptr) return places;
    const auto at = align_receives(aligned(*sender), aligned(*receiver), same_clock_);
    for (size_t i = 0; i < sender->uses.size(); ++i) {
      places[static_cast<int64_t>(i)].push_back({sender->rank_index, sender->uses[i]});
    }
    for (size_t i = 0; i < at.size(); ++i) {
      if (at[i] != kNoPartner) places[at[i]].push_back({receiver->rank_index, receiver->uses[i]});
    }
    return places;
  }

  bool leave_together(const std::vector<std::vector<Member>>& joined) const {
    std::map<std::pair<int32_t, int32_t>, std::vector<int64_t>> differences;
    for (const auto& members : joined) {
      for (size_t i = 1; i < members.size(); ++i) {
        differences[{members[0].rank_index, members[i].rank_index}].push_back(end_of(members[i]) -
                                                                              end_of(members[0]));
      }
    }
    for (const auto& [pair, values] : differences) {
      // One common call would "end together" under any clocks: too little to believe in.
      const bool steady = values.size() >= 3 && median_deviation(values) <= kTogether_ns;
      const bool close = same_clock_ && std::abs(median(values)) <= kTogether_ns &&
                         median_deviation(values) <= kTogether_ns;
      if (!steady && !close) return false;
    }
    return true;
  }

  int64_t end_of(const Member& member) const {
    const CollectiveUse& use = use_of(member);
    return use.start_ns + use.duration_ns + offsets_[static_cast<size_t>(member.rank_index)];
  }

  void emit(const Channel& channel, const std::vector<Member>& members) {
    MatchedCollective collective;
    collective.group = channel.group;
    collective.ranks = channel.ranks;
    for (const Member& member : members) {
      const CollectiveUse& use = use_of(member);
      const int64_t end = end_of(member);
      collective.members.push_back(
          {member.rank_index, member.use, end - use.duration_ns, end, 0, 0});
      if (collective.name.empty()) collective.name = use.name;
      if (collective.step < 0) collective.step = use.step;
      if (collective.sequence < 0) collective.sequence = use.sequence;
      collective.bytes = std::max(collective.bytes, use.bytes);
    }
    if (one_way(channel)) collective.name = "send";
    const auto count = static_cast<int32_t>(members.size());
    if (!channel.known && count >= 3 && collective.name == "send_receive") {
      collective.name = "all_to_all";
    }
    const int32_t expected = channel.source >= 0 ? 2 : channel.known ? channel.size : world_size_;
    collective.whole = expected > 0 && count == expected;
    if (channel.source >= 0) collective.ranks = {channel.source, channel.destination};
    if (!channel.known && collective.whole && collective.ranks.empty()) {
      for (const Member& member : members) {
        collective.ranks.push_back(ranks_[static_cast<size_t>(member.rank_index)].rank);
      }
      std::sort(collective.ranks.begin(), collective.ranks.end());
    }
    std::stable_sort(collective.members.begin(),
                     collective.members.end(),
                     [](const auto& a, const auto& b) { return a.start_ns < b.start_ns; });
    result_.push_back(std::move(collective));
  }

  const std::vector<RankFacts>& ranks_;
  const std::vector<int64_t>& offsets_;
  const bool same_clock_;
  const int32_t world_size_;
  std::vector<std::string>& warnings_;
  std::vector<MatchedCollective> result_;
};

}  // namespace

std::vector<MatchedCollective> match_collectives(const std::vector<RankFacts>& ranks,
                                                 const std::vector<int64_t>& offsets,
                                                 bool same_clock,
                                                 int32_t world_size,
                                                 std::vector<std::string>& warnings) {
  return Matcher(ranks, offsets, same_clock, world_size, warnings).run();
}

}  // namespace vitrine

// A rank for each process, then for each span; then a draft of each rank's own.
#include "readers/kineto_ranks.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <unordered_map>

#include "core/format.h"
#include "readers/decimal.h"
#include "readers/kineto_copier.h"
#include "readers/kineto_header.h"

namespace vitrine {
namespace {

constexpr int32_t kNobody = -1;
using RankOfPid = std::map<std::string, int32_t>;

// "rank 3: python", "[Rank-3] 1234", "rank3_1234"; -1 = none.
int32_t rank_in_label(const std::string& label) {
  const std::string text = lower(label);
  for (size_t at = text.find("rank"); at != std::string::npos; at = text.find("rank", at + 1)) {
    if (at > 0 && std::isalpha(static_cast<unsigned char>(text[at - 1])) != 0) continue;
    const size_t digits = text.find_first_not_of(" _:#=-", at + 4);
    if (digits == std::string::npos) break;
    size_t end = digits;
    while (end < text.size() && std::isdigit(static_cast<unsigned char>(text[end])) != 0) ++end;
    if (end > digits && end - digits <= 8)
      return static_cast<int32_t>(first_integer(text.substr(digits, end - digits)));
  }
  return kNobody;
}

RankOfPid by_labels(const KinetoDraft& draft) {
  RankOfPid out;
  const auto look = [&](const std::string& pid, const std::string& text) {
    if (const int32_t rank = rank_in_label(text); rank != kNobody) out.try_emplace(pid, rank);
  };
  for (const auto& key : draft.lane_keys) look(key.pid, key.pid);
  for (const auto& [pid, name] : draft.process_names) look(pid, name);
  for (const auto& [pid, label] : draft.process_labels) look(pid, label);
  return out;
}

// A few of another rank are damage.
RankOfPid by_collectives(const KinetoDraft& draft) {
  RankOfPid out;
  for (const auto& [pid, votes] : draft.rank_votes) {
    int64_t all = 0;
    const auto* most = &*votes.begin();
    for (const auto& vote : votes) {
      all += vote.second;
      if (vote.second > most->second) most = &vote;
    }
    if (most->second * 10 >= all * 9) out.emplace(pid, most->first);
  }
  return out;
}

// How many ranks the processes that have spans are of.
size_t ranks_in(const KinetoDraft& draft, const RankOfPid& ranks) {
  std::set<int32_t> seen;
  for (const auto& key : draft.lane_keys) {
    if (const auto it = ranks.find(key.pid); it != ranks.end()) seen.insert(it->second);
  }
  return seen.size();
}

// The rank of every span.
class SpanRanks {
 public:
  SpanRanks(const KinetoDraft& draft, const RankOfPid& ranks) : draft_(draft) {
    for (const auto& key : draft.lane_keys) {
      const auto it = ranks.find(key.pid);
      lanes_.push_back(it == ranks.end() ? kNobody : it->second);
    }
    const bool all_known = std::find(lanes_.begin(), lanes_.end(), kNobody) == lanes_.end();
    if (!all_known) gather_launches();
    for (const int32_t rank : lanes_) {
      if (rank != kNobody && (first_ == kNobody || rank < first_)) first_ = rank;
    }
    const Spans& spans = draft.timeline.spans;
    ranks_.reserve(spans.size());
    std::map<int32_t, std::map<int32_t, int64_t>> votes;  // of lanes without a rank
    for (size_t i = 0; i < spans.size(); ++i) {
      const auto lane = static_cast<size_t>(spans.lane[i]);
      const int32_t rank = lanes_[lane] != kNobody ? lanes_[lane] : launcher_of(i);
      if (lanes_[lane] == kNobody && rank != kNobody) ++votes[spans.lane[i]][rank];
      ranks_.push_back(rank);
    }
    for (size_t i = 0; i < spans.size(); ++i) {
      if (ranks_[i] == kNobody) ranks_[i] = most_of(votes[spans.lane[i]]);
    }
  }
  int32_t of_span(size_t span) const { return ranks_[span]; }
  // kNobody of lanes that several ranks share.
  int32_t of_lane(int32_t lane) const { return lanes_[static_cast<size_t>(lane)]; }
  int64_t guessed() const { return guessed_; }
  int32_t first() const { return first_; }

 private:
  struct Launch {
    int64_t start_ns;
    int32_t rank;
  };

  void gather_launches() {
    const Spans& spans = draft_.timeline.spans;
    for (size_t i = 0; i < spans.size(); ++i) {
      const int32_t rank = lanes_[static_cast<size_t>(spans.lane[i])];
      if (spans.kind[i] != SpanKind::kRuntime || spans.correlation[i] == 0 || rank == kNobody)
        continue;
      launches_.emplace(spans.correlation[i], Launch{spans.start_ns[i], rank});
    }
  }
  // Of several ranks that use the number: the one that launched last before the work began.
  int32_t launcher_of(size_t span) const {
    const Spans& spans = draft_.timeline.spans;
    if (spans.correlation[span] == 0) return kNobody;
    const auto [begin, end] = launches_.equal_range(spans.correlation[span]);
    const Launch* best = nullptr;
    size_t looked_at = 0;
    for (auto it = begin; it != end && looked_at < kMostLooked; ++it, ++looked_at) {
      const Launch& launch = it->second;
      if (best == nullptr) {
        best = &launch;
        continue;
      }
      const bool before = launch.start_ns <= spans.start_ns[span];
      const bool best_before = best->start_ns <= spans.start_ns[span];
      if (before != best_before ? before : before && launch.start_ns > best->start_ns)
        best = &launch;
    }
    return best == nullptr ? kNobody : best->rank;
  }
  int32_t most_of(const std::map<int32_t, int64_t>& votes) {
    ++guessed_;
    int32_t best = first_;
    int64_t most = 0;
    for (const auto& [rank, count] : votes) {
      if (count > most) most = count, best = rank;
    }
    return best;
  }

  static constexpr size_t kMostLooked = 4096;  // ranks that use one number
  const KinetoDraft& draft_;
  std::vector<int32_t> lanes_, ranks_;
  std::unordered_multimap<int64_t, Launch> launches_;
  int64_t guessed_ = 0;
  int32_t first_ = kNobody;
};

// What belongs to one rank, as places in the whole.
struct Share {
  std::vector<uint32_t> spans, announcements, own, counters, allocations, groups;
};

class Splitter {
 public:
  Splitter(const KinetoDraft& whole, const RankOfPid& ranks)
      : whole_(whole), rank_of_pid_(ranks), spans_(whole, ranks) {
    const auto& timeline = whole.timeline;
    for (const auto& one : whole.merged) shares_.try_emplace(one.rank);
    for (size_t i = 0; i < timeline.spans.size(); ++i)
      shares_[spans_.of_span(i)].spans.push_back(static_cast<uint32_t>(i));
    for (size_t i = 0; i < whole.own_spans.size(); ++i)
      shares_[spans_.of_span(whole.own_spans[i].span)].own.push_back(static_cast<uint32_t>(i));
    for (size_t i = 0; i < whole.announcements.size(); ++i)
      of(spans_.of_lane(whole.announcements[i].lane))
          .announcements.push_back(static_cast<uint32_t>(i));
    const auto by_pid = [&](size_t count, auto pid, std::vector<uint32_t> Share::*places) {
      for (size_t i = 0; i < count; ++i) {
        const auto it = rank_of_pid_.find(pid(i));
        (of(it == rank_of_pid_.end() ? kNobody : it->second).*places)
            .push_back(static_cast<uint32_t>(i));
      }
    };
    const StringPool& texts = timeline.strings;
    by_pid(
        timeline.allocations.size(),
        [&](size_t i) { return texts[whole.allocation_pids[i]]; },
        &Share::allocations);
    by_pid(
        whole.counters.size(),
        [&](size_t i) { return texts[whole.counters[i].pid]; },
        &Share::counters);
    by_pid(
        whole.groups_seen.size(),
        [&](size_t i) { return whole.groups_seen[i].pid; },
        &Share::groups);
  }

  std::vector<KinetoDraft> run() {
    std::map<int32_t, const KinetoDraft::MergedRank*> merged;
    for (const auto& one : whole_.merged) merged.emplace(one.rank, &one);
    std::map<int32_t, const std::string*> headers;
    for (const std::string& text : whole_.rank_headers) {
      KinetoDraft said;
      KinetoHeader(said).take("distributedInfo", text);
      if (said.rank_known) headers.emplace(said.timeline.rank, &text);
    }
    KinetoCopier copier(whole_);
    std::vector<KinetoDraft> out;
    for (const auto& [rank, share] : shares_) {
      const auto noted = merged.find(rank);
      const auto header = headers.find(rank);
      out.push_back(head(rank,
                         noted == merged.end() ? nullptr : noted->second,
                         header == headers.end() ? nullptr : header->second));
      copier.begin(out.back(), noted == merged.end() ? nullptr : &noted->second->pids);
      copy(share, copier, out.back());
      if (noted != merged.end()) move_back(noted->second->offset_ns, out.back());
    }
    say_of_whole(out.front());
    return out;
  }
  int64_t guessed() const { return spans_.guessed(); }

 private:
  // Of nobody, or of a rank without spans: the first's.
  Share& of(int32_t rank) {
    const auto it = shares_.find(rank);
    return it == shares_.end() ? shares_.begin()->second : it->second;
  }

  // What the file says of all of its ranks, and of this one.
  KinetoDraft head(int32_t rank,
                   const KinetoDraft::MergedRank* noted,
                   const std::string* distributed) const {
    KinetoDraft out;
    KinetoHeader header(out);
    out.timeline.source = whole_.timeline.source;
    if (noted != nullptr) {
      for (const auto& [key, value] : noted->header) header.take(key, value);
      header.finish();
    } else {
      out.own = whole_.own, out.hip = whole_.hip;
      out.timeline.info = whole_.timeline.info;
      out.timeline.world_size = whole_.timeline.world_size;
      out.world_size_known = whole_.world_size_known;
      if (distributed != nullptr) header.take("distributedInfo", *distributed);
    }
    out.timeline.rank = rank;
    out.rank_known = true;
    if (noted == nullptr) out.timeline.wall_anchor_ns = whole_.timeline.wall_anchor_ns;
    return out;
  }

  void copy(const Share& share, KinetoCopier& copier, KinetoDraft& to) const {
    to.timeline.spans.reserve(share.spans.size());
    for (const uint32_t i : share.spans) copier.add_span(i);
    for (const uint32_t i : share.announcements) copier.add(whole_.announcements[i]);
    for (const uint32_t i : share.own) {
      const auto own = whole_.own_spans[i];
      const auto at = std::lower_bound(share.spans.begin(), share.spans.end(), own.span);
      copier.add(own, static_cast<uint32_t>(at - share.spans.begin()));
    }
    for (const uint32_t i : share.counters) copier.add(whole_.counters[i]);
    for (const uint32_t i : share.groups) copier.add(whole_.groups_seen[i]);
    for (const uint32_t i : share.allocations)
      to.timeline.allocations.push_back(whole_.timeline.allocations[i]);
  }

  // To the rank's own clock: what is said across ranks is then what their own files say.
  static void move_back(int64_t offset_ns, KinetoDraft& draft) {
    if (offset_ns == 0) return;
    const auto move = [offset_ns](int64_t& time) {
      constexpr int64_t kFarthest = INT64_MAX / 2;  // as of all times
      int64_t moved = 0;
      if (__builtin_sub_overflow(time, offset_ns, &moved)) moved = time < 0 ? INT64_MIN : INT64_MAX;
      time = std::clamp(moved, -kFarthest, kFarthest);
    };
    for (int64_t& start : draft.timeline.spans.start_ns) move(start);
    for (auto& call : draft.announcements) move(call.start_ns), move(call.end_ns);
    for (auto& sample : draft.counters) move(sample.time_ns);
    for (auto& event : draft.timeline.allocations) move(event.time_ns);
  }

  void say_of_whole(KinetoDraft& first) const {
    auto& warnings = first.timeline.warnings;
    warnings.insert(
        warnings.begin(), whole_.timeline.warnings.begin(), whole_.timeline.warnings.end());
    first.damage = whole_.damage, first.amounts = whole_.amounts;
  }

  const KinetoDraft& whole_;
  const RankOfPid& rank_of_pid_;
  const SpanRanks spans_;
  std::map<int32_t, Share> shares_;
};

// By what the ranks of a file that others merged are told apart; "" = they are not.
std::string tell_apart(const KinetoDraft& draft, RankOfPid& ranks) {
  ranks = by_labels(draft);
  RankOfPid said = by_collectives(draft);
  if (ranks_in(draft, ranks) > 1) {
    ranks.merge(said);
    return "the names of its processes";
  }
  ranks = std::move(said);
  return ranks_in(draft, ranks) > 1 ? "the ranks that its collectives name" : "";
}

}  // namespace

std::vector<KinetoDraft> split_ranks(KinetoDraft draft) {
  RankOfPid ranks;
  for (const auto& merged : draft.merged) {
    for (const auto& [pid, own] : merged.pids) ranks.emplace(pid, merged.rank);
  }
  auto& warnings = draft.timeline.warnings;
  if (ranks_in(draft, ranks) == 0) {
    ranks.clear();
    draft.merged.clear();
    const std::string by = tell_apart(draft, ranks);
    if (by.empty()) {
      if (draft.rank_headers.size() > 1) {
        warnings.push_back(
            format("the file has distributedInfo of %zu ranks, but nothing in it says which events "
                   "are whose: they are read as one rank; give every rank's own file",
                   draft.rank_headers.size()));
      }
      std::vector<KinetoDraft> whole;
      whole.push_back(std::move(draft));
      return whole;
    }
    warnings.push_back(
        format("the file holds %zu ranks, merged by another tool: told apart by %s. What was only "
               "in their own files (groups, clocks, card properties) may be missing",
               ranks_in(draft, ranks),
               by.c_str()));
  }
  Splitter splitter(draft, ranks);
  const int64_t guessed = splitter.guessed();
  std::vector<KinetoDraft> out = splitter.run();
  if (guessed > 0) {
    out.front().timeline.warnings.push_back(format(
        "%lld events of the merged file belong to no process of a known rank: they are given "
        "to the rank that most of their lane is of, else to the first",
        static_cast<long long>(guessed)));
  }
  return out;
}

}  // namespace vitrine

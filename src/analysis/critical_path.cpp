// Which steps are looked at, what their longest chain is made of, and what changes would bring.
#include "analysis/critical_path.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "analysis/dependency_graph.h"
#include "analysis/kernel_classes.h"
#include "analysis/statistics.h"
#include "core/format.h"

namespace vitrine {
namespace {

// Longer than this many halves of the median: no ordinary step.
constexpr int64_t kOrdinaryHalves = 3;
constexpr int64_t kCut = 20;
// No further step is taken once so much was looked at.
constexpr size_t kEnoughNodes = 40'000;

struct Choice {
  Interval host{0, 0};
  int32_t first_step = -1, last_step = -1;
  int64_t steps = 0;
  std::string unknown;
};

size_t nodes_within(const RankParts& parts, Interval window) {
  const auto before = [](const auto& list, int64_t at) {
    return std::partition_point(
               list.begin(), list.end(), [at](const auto& one) { return one.begin < at; }) -
           list.begin();
  };
  const auto& launches = parts.host.launches;
  return static_cast<size_t>(before(launches, window.end) - before(launches, window.begin) +
                             before(parts.device, window.end) - before(parts.device, window.begin));
}

Choice choose_steps(const RankParts& parts, size_t most_nodes) {
  const Spans& spans = parts.timeline.spans;
  const std::vector<size_t>& steps = parts.steps.spans();
  std::vector<int64_t> durations;
  for (const size_t i : steps) durations.push_back(spans.duration_ns[i]);
  const int64_t longest = *std::max_element(durations.begin(), durations.end());
  // Steps far shorter than the longest are cut by the end of the recording, not steps.
  std::vector<int64_t> whole;
  std::copy_if(durations.begin(), durations.end(), std::back_inserter(whole), [&](int64_t ns) {
    return kCut * ns >= longest;
  });
  const int64_t middle = median(std::move(whole));
  size_t best = 0, most = 0;
  for (size_t i = 0, run = 0; i < steps.size(); ++i) {
    const bool ordinary =
        2 * durations[i] <= kOrdinaryHalves * middle && kCut * durations[i] >= longest;
    run = ordinary ? run + 1 : 0;
    if (run > most) most = run, best = i + 1 - run;
  }
  Choice out;
  for (size_t i = best; i < best + most; ++i) {
    const Interval window{spans.start_ns[steps[best]], spans.start_ns[steps[i]] + durations[i]};
    if (nodes_within(parts, window) > (out.steps == 0 ? most_nodes : kEnoughNodes)) break;
    out.host = window, ++out.steps, out.last_step = spans.step[steps[i]];
  }
  if (out.steps == 0) {
    out.unknown = "a step has more launches and kernels than are looked at (" +
                  std::to_string(most_nodes) + ")";
    return out;
  }
  out.first_step = spans.step[steps[best]];
  return out;
}

Choice choose_window(const RankParts& parts, size_t most_nodes) {
  if (!parts.steps.spans().empty()) return choose_steps(parts, most_nodes);
  Choice out;
  out.host = {parts.device.front().begin, parts.device.front().end};
  for (const DeviceSpan& span : parts.device) {
    if (const Launch* launch = parts.launch(span)) {
      out.host.begin = std::min(out.host.begin, launch->begin);
    }
    out.host.end = std::max(out.host.end, span.end);
  }
  if (nodes_within(parts, out.host) > most_nodes) {
    out.unknown = "no steps are marked, and the recording is too long to be looked at as one";
  }
  return out;
}

// Along an edge between collectives the longest way, at the durations now.
struct Way {
  int32_t from;
  int64_t delay;
};

// Folds all nodes but the communication kernels into delays between those.
class Folding {
 public:
  Folding(const DependencyGraph& graph, const std::vector<int32_t>& use_of_device, PathFacts& out)
      : graph_(graph), use_(use_of_device), out_(out), ways_(graph.nodes.size()) {}

  void run() {
    ends_ = {graph_.nodes.front().begin_ns};
    ways_[0] = {{0, 0}};
    for (size_t i = 1; i < graph_.nodes.size(); ++i) take(i);
    for (const Way& way : last_) link(way, static_cast<int32_t>(ends_.size()));
    out_.graph_begin_ns = ends_.front();
  }

 private:
  static constexpr size_t kMostWays = 8;

  void take(size_t i) {
    const GraphNode& node = graph_.nodes[i];
    std::vector<Way> own;
    for (size_t e = node.first_edge; e < graph_.edges_end(i); ++e) {
      const GraphEdge& edge = graph_.edges[e];
      const int64_t weight = edge.fixed_ns + edge.scaled_ns + node.delay_ns;
      if (edge.from_begin) {
        // As far into the other's work as it was.
        for (const Way& way : before_work(edge.from)) add(own, {way.from, way.delay + weight});
      } else {
        for (const Way& way : ways_[edge.from]) add(own, {way.from, way.delay + weight});
      }
    }
    if (own.size() > kMostWays) {
      std::nth_element(own.begin(), own.begin() + kMostWays, own.end(), [&](Way a, Way b) {
        return end(a) > end(b);
      });
      own.resize(kMostWays);
    }
    const int32_t use = node.device >= 0 && node.group == kCommunicationGroup
                            ? use_[static_cast<size_t>(node.device)]
                            : -1;
    if (use >= 0) {
      const auto place = static_cast<int32_t>(ends_.size());
      for (const Way& way : own) link(way, place);
      out_.uses.push_back(use);
      ends_.push_back(node.begin_ns + node.duration_ns);
      own = {{place, 0}};
    } else {
      for (Way& way : own) way.delay += node.duration_ns;
    }
    for (const Way& way : own) add(last_, way);
    ways_[i] = std::move(own);
  }

  // A communication kernel's begin is where its end was, its duration earlier.
  std::vector<Way> before_work(uint32_t node) const {
    std::vector<Way> out = ways_[node];
    for (Way& way : out) way.delay -= graph_.nodes[node].duration_ns;
    return out;
  }
  int64_t end(const Way& way) const { return ends_[static_cast<size_t>(way.from)] + way.delay; }
  static void add(std::vector<Way>& ways, Way next) {
    for (Way& way : ways) {
      if (way.from != next.from) continue;
      way.delay = std::max(way.delay, next.delay);
      return;
    }
    ways.push_back(next);
  }
  void link(const Way& way, int32_t to) { out_.links.push_back({way.from, to, way.delay}); }

  const DependencyGraph& graph_;
  const std::vector<int32_t>& use_;
  PathFacts& out_;
  std::vector<std::vector<Way>> ways_;
  std::vector<Way> last_;
  std::vector<int64_t> ends_;  // as recorded
};

// Of the end of the window, with these durations of `uses`.
int64_t time_links(const PathFacts& path, const std::vector<int64_t>& durations) {
  const size_t last = durations.size() + 1;
  std::vector<int64_t> begin(last + 1, INT64_MIN);
  begin[0] = path.graph_begin_ns;
  for (const PathLink& link : path.links) {
    const auto from = static_cast<size_t>(link.from), to = static_cast<size_t>(link.to);
    const int64_t end = begin[from] + (from == 0 ? 0 : durations[from - 1]);
    begin[to] = std::max(begin[to], end + link.delay_ns);
  }
  return begin[last];
}

void spend(const std::vector<ChainPiece>& chain,
           const RankParts& parts,
           const std::vector<int32_t>& use_of_device,
           PathFacts& out) {
  for (const ChainPiece& piece : chain) {
    const int64_t length = piece.end_ns - piece.begin_ns;
    out.part_ns[static_cast<size_t>(piece.part)] += length;
    if (piece.device < 0) continue;
    const auto device = static_cast<size_t>(piece.device);
    if (piece.part == PathPart::kCompute) {
      const KernelTraits traits = kernel_traits(parts.name(parts.device[device]));
      out.class_ns[static_cast<size_t>(traits.kind)] += length;
    }
    if (piece.part == PathPart::kCommunication) {
      out.communication.push_back({use_of_device[device], piece.begin_ns, piece.end_ns});
    }
  }
  std::reverse(out.communication.begin(), out.communication.end());
}

class Asker {
 public:
  Asker(const DependencyGraph& graph, PathFacts& out) : graph_(graph), out_(out) {}

  void ask_all() {
    std::array<bool, kScaleGroups> used{};
    for (size_t i = 1; i < graph_.nodes.size(); ++i) used[graph_.nodes[i].group] = true;
    for (const GraphEdge& edge : graph_.edges) used[edge.group] |= edge.scaled_ns > 0;
    for (const GraphNode& node : graph_.nodes) used[kDataGroup] |= node.data_ns > 0;
    if (used[kCommunicationGroup]) ask(Change::kFasterCommunication, kCommunicationGroup, 1);
    if (used[kCommunicationGroup]) {
      out_.what_if.push_back({Change::kNoWaiting,
                              KernelClass::kOther,
                              -1,
                              "the traces of the other ranks were not matched"});
    }
    if (graph_.launches_known) {
      ask(Change::kFasterHost, kHostGroup, 1);
    } else {
      out_.what_if.push_back(
          {Change::kFasterHost, KernelClass::kOther, -1, "launches are not recorded"});
    }
    if (used[kDataGroup]) ask(Change::kInstantData, kDataGroup, 0);
    for (int i = 0; i < kKernelClasses; ++i) {
      const auto group = static_cast<ScaleGroup>(kFirstClassGroup + i);
      if (used[group]) ask(Change::kFasterClass, group, 1);
    }
  }

 private:
  void ask(Change change, ScaleGroup group, int64_t halves) {
    Scale scale = kAsItIs;
    scale[group] = halves;
    const auto kind = group >= kFirstClassGroup ? static_cast<KernelClass>(group - kFirstClassGroup)
                                                : KernelClass::kOther;
    const int64_t span = std::max<int64_t>(0, end_of(graph_, scale) - graph_.base_ns);
    out_.what_if.push_back({change, kind, span, ""});
  }

  const DependencyGraph& graph_;
  PathFacts& out_;
};

void sort_answers(PathFacts& path) {
  std::stable_sort(path.what_if.begin(), path.what_if.end(), [](const WhatIf& a, const WhatIf& b) {
    if ((a.span_ns < 0) != (b.span_ns < 0)) return b.span_ns < 0;
    return a.span_ns < b.span_ns;
  });
}

// By use: -1 = not matched.
std::vector<std::vector<int64_t>> waits_of(const std::vector<RankFacts>& ranks,
                                           const std::vector<MatchedCollective>& collectives) {
  std::vector<std::vector<int64_t>> out(ranks.size());
  for (size_t i = 0; i < ranks.size(); ++i) out[i].assign(ranks[i].collectives.size(), -1);
  for (const MatchedCollective& matched : collectives) {
    if (matched.members.size() < 2) continue;
    for (const auto& member : matched.members) {
      out[static_cast<size_t>(member.rank_index)][static_cast<size_t>(member.use)] = member.wait_ns;
    }
  }
  return out;
}

void finish_path(const RankFacts& rank, const std::vector<int64_t>& waits, PathFacts& path) {
  int64_t all = 0, matched = 0;
  std::vector<int64_t> now, faster, together;
  for (const int32_t use : path.uses) {
    const int64_t duration = rank.collectives[static_cast<size_t>(use)].duration_ns;
    const int64_t wait =
        std::clamp<int64_t>(waits[static_cast<size_t>(use)], 0, std::max<int64_t>(0, duration));
    all += duration, matched += waits[static_cast<size_t>(use)] >= 0 ? duration : 0;
    now.push_back(duration);
    faster.push_back(wait + (duration - wait) / 2);
    together.push_back(duration - wait);
  }
  // A tenth may be beside the other ranks' recordings.
  if (all == 0 || matched * 10 < all * 9 || time_links(path, now) != path.end_ns) return;
  for (const PathPiece& piece : path.communication) {
    const auto use = static_cast<size_t>(piece.use);
    const int64_t until = rank.collectives[use].start_ns + std::max<int64_t>(0, waits[use]);
    const int64_t waited = std::max<int64_t>(0, std::min(until, piece.end_ns) - piece.begin_ns);
    path.part_ns[static_cast<size_t>(PathPart::kCommunication)] -= waited;
    path.part_ns[static_cast<size_t>(PathPart::kWaiting)] += waited;
  }
  for (WhatIf& what_if : path.what_if) {
    const auto answer = [&](const std::vector<int64_t>& durations) {
      what_if.span_ns = std::max<int64_t>(0, time_links(path, durations) - path.begin_ns);
      what_if.unknown.clear();
    };
    if (what_if.change == Change::kFasterCommunication) answer(faster);
    if (what_if.change == Change::kNoWaiting) answer(together);
  }
}

}  // namespace

const char* path_part_name(PathPart part) {
  constexpr std::array<const char*, kPathParts> kNames = {"host",
                                                          "data loading",
                                                          "launch delay",
                                                          "compute",
                                                          "communication",
                                                          "waiting for other ranks",
                                                          "copies",
                                                          "between kernels",
                                                          "unknown"};
  return kNames[static_cast<size_t>(part)];
}

std::string what_if_name(const WhatIf& what_if) {
  switch (what_if.change) {
    case Change::kFasterCommunication:
      return "communication 2x faster";
    case Change::kFasterHost:
      return "host 2x faster";
    case Change::kInstantData:
      return "data loader infinitely fast";
    case Change::kNoWaiting:
      return "no waiting for other ranks";
    case Change::kFasterClass:
      return std::string(kernel_class_name(what_if.kind)) + " kernels 2x faster";
  }
  return "";
}

const WhatIf* PathFacts::find(Change change) const {
  const auto it = std::find_if(
      what_if.begin(), what_if.end(), [&](const WhatIf& one) { return one.change == change; });
  return it == what_if.end() ? nullptr : &*it;
}

PathFacts measure_path(const RankParts& parts,
                       const std::vector<CollectiveUse>& uses,
                       size_t most_nodes) {
  PathFacts out;
  if (parts.device.empty()) {
    out.unknown = "no work of a device is recorded";
    return out;
  }
  const Choice choice = choose_window(parts, most_nodes);
  if (!choice.unknown.empty()) {
    out.unknown = choice.unknown;
    return out;
  }
  const DependencyGraph graph = build_graph(parts, choice.host, choice.steps > 0);
  out.begin_ns = graph.base_ns, out.end_ns = graph.end_ns;
  out.steps = choice.steps, out.first_step = choice.first_step, out.last_step = choice.last_step;
  out.inferred = graph.inferred;
  if (out.end_ns <= out.begin_ns) {
    out.unknown = "the steps launched no work of the device";
    return out;
  }
  std::vector<int32_t> use_of_device(parts.device.size(), -1);
  int32_t use = 0;
  for (size_t i = 0; i < parts.device.size(); ++i) {
    if (parts.device[i].use == DeviceUse::kCommunication) use_of_device[i] = use++;
  }
  spend(longest_chain(graph, parts.device), parts, use_of_device, out);
  Asker(graph, out).ask_all();
  sort_answers(out);
  if (!uses.empty() && parts.timeline.world_size > 1) Folding(graph, use_of_device, out).run();
  return out;
}

void finish_paths(std::vector<RankFacts>& ranks,
                  const std::vector<MatchedCollective>& collectives) {
  const auto waits = waits_of(ranks, collectives);
  for (size_t i = 0; i < ranks.size(); ++i) {
    PathFacts& path = ranks[i].critical_path;
    if (path.known() && !path.uses.empty()) finish_path(ranks[i], waits[i], path);
    sort_answers(path);
    path.uses = {}, path.links = {};
  }
}

}  // namespace vitrine

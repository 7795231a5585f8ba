// Who waits for whom, who sends how much to whom, collectives, groups and links.
#include <algorithm>
#include <map>
#include <utility>

#include "report/page_parts.h"

namespace vitrine {

namespace {

constexpr size_t kMostCollectives = 400;

// Bytes from rank to rank.
using Traffic = std::map<std::pair<int32_t, int32_t>, int64_t>;

Json traffic_json(const Traffic& traffic) {
  Json out = Json::array();
  for (const auto& [pair, amount] : traffic) out.push_back({pair.first, pair.second, amount});
  return out;
}

std::string role_of(const LayoutFacts& layout, const std::string& group, int32_t rank) {
  for (const auto& candidate : layout.groups) {
    if (candidate.name != group) continue;
    if (candidate.ranks.empty() ||
        std::find(candidate.ranks.begin(), candidate.ranks.end(), rank) != candidate.ranks.end()) {
      return candidate.role;
    }
  }
  return "unknown";
}

// A message to a peer counts for that peer; a collective's bytes are shared evenly over the other
// ranks of its group, since its algorithm's own paths are not in a trace.
std::map<std::string, Traffic> traffic_by_role(const JobFacts& job) {
  std::map<std::string, Traffic> out;
  for (const RankFacts& rank : job.ranks) {
    for (const CollectiveUse& use : rank.collectives) {
      if (use.sent_bytes <= 0) continue;
      const bool grouped = use.group >= 0 && static_cast<size_t>(use.group) < rank.groups.size();
      const GroupUse group = grouped ? rank.groups[static_cast<size_t>(use.group)] : GroupUse();
      Traffic& traffic = out[role_of(job.layout, group.name, rank.rank)];
      if (use.peer >= 0) {
        traffic[{rank.rank, use.peer}] += use.sent_bytes;
        continue;
      }
      const auto others = static_cast<int64_t>(group.ranks.size()) - 1;
      if (others < 1) continue;
      for (const int32_t other : group.ranks) {
        if (other != rank.rank) traffic[{rank.rank, other}] += use.sent_bytes / others;
      }
    }
  }
  return out;
}

Json kinds_json(const JobFacts& job) {
  Json out = Json::array();
  for (const CollectiveKind& kind : job.collective_kinds) {
    Json last = Json::array();
    for (const auto& [rank, times] : kind.last_arrivals) last.push_back({rank, times});
    out.push_back({{"name", kind.name},
                   {"group", kind.group},
                   {"ranks", kind.ranks},
                   {"count", kind.count},
                   {"unmatched", kind.unmatched},
                   {"bytes", kind.bytes},
                   {"total", kind.total_ns},
                   {"exposed", kind.exposed_ns},
                   {"wait", kind.wait_ns},
                   {"transfer", kind.transfer_ns},
                   {"bandwidth", kind.bus_bytes_per_s},
                   {"expected", kind.expected_bytes_per_s},
                   {"expected_from", kind.expected_from},
                   {"last", std::move(last)}});
  }
  return out;
}

int64_t exposed_wait(const MatchedCollective& collective) {
  int64_t sum = 0;
  for (const auto& member : collective.members) sum += member.exposed_wait_ns;
  return sum;
}

Json matched_json(const JobFacts& job, const PageClock& clock) {
  std::vector<const MatchedCollective*> longest;
  for (const auto& collective : job.collectives) {
    if (!collective.members.empty()) longest.push_back(&collective);
  }
  const auto weight = [](const MatchedCollective* collective) {
    return exposed_wait(*collective) + collective->transfer_ns;
  };
  std::stable_sort(longest.begin(), longest.end(), [&](const auto* a, const auto* b) {
    return weight(a) > weight(b);
  });
  if (longest.size() > kMostCollectives) longest.resize(kMostCollectives);
  Json out = Json::array();
  for (const auto* collective : longest) {
    const auto& last = collective->members.back();
    int64_t end = last.end_ns;
    for (const auto& member : collective->members) end = std::max(end, member.end_ns);
    const auto rank_of = [&](const auto& member) {
      return job.ranks.at(static_cast<size_t>(member.rank_index)).rank;
    };
    out.push_back({{"name", collective->name},
                   {"group", collective->group},
                   {"step", collective->step},
                   {"bytes", collective->bytes},
                   {"whole", collective->whole},
                   {"skew", collective->arrival_skew_ns},
                   {"wait", exposed_wait(*collective)},
                   {"transfer", collective->transfer_ns},
                   {"bandwidth", collective->bus_bytes_per_s},
                   {"first", rank_of(collective->members.front())},
                   {"last", collective->members.size() > 1 ? rank_of(last) : -1},
                   {"begin", clock.at_job(collective->members.front().start_ns)},
                   {"end", clock.at_job(end)}});
  }
  return out;
}

Json layout_json(const LayoutFacts& layout) {
  Json groups = Json::array();
  for (const auto& group : layout.groups) {
    groups.push_back({{"role", group.role},
                      {"name", group.name},
                      {"description", group.description},
                      {"ranks", group.ranks},
                      {"uses", group.uses},
                      {"total", group.total_ns},
                      {"bytes", group.bytes}});
  }
  return {{"known", layout.known},
          {"confidence", layout.confidence},
          {"reasons", layout.reasons},
          {"sharded", layout.data_sharded},
          {"sizes",
           {{"data", layout.data},
            {"tensor", layout.tensor},
            {"pipeline", layout.pipeline},
            {"expert", layout.expert},
            {"context", layout.context}}},
          {"groups", std::move(groups)}};
}

Json nccl_json(const NcclFacts& nccl) {
  std::map<std::string, int64_t> transports;
  for (const auto& channel : nccl.channels) ++transports[channel.transport];
  return {{"source", nccl.source},
          {"version", nccl.version},
          {"network", nccl.network},
          {"devices", nccl.network_devices},
          {"hosts", nccl.hosts},
          {"transports", transports},
          {"environment", nccl.environment},
          {"problems", nccl.problems}};
}

}  // namespace

Json communication_json(const JobFacts& job, const PageClock& clock) {
  Json waits = Json::array(), bytes = Json::object(), ranks = Json::array();
  for (size_t i = 0; i < job.ranks.size(); ++i) {
    ranks.push_back(job.ranks[i].rank);
    if (i >= job.waits.size()) continue;
    for (const auto& [other, ns] : job.waits[i].waited_for) {
      waits.push_back({job.ranks[i].rank, other, ns});
    }
  }
  for (const auto& [role, traffic] : traffic_by_role(job)) bytes[role] = traffic_json(traffic);
  Json nccl = Json::array();
  for (const auto& facts : job.nccl) nccl.push_back(nccl_json(facts));
  return {{"ranks", std::move(ranks)},
          {"waits", std::move(waits)},
          {"bytes", std::move(bytes)},
          {"kinds", kinds_json(job)},
          {"collectives", matched_json(job, clock)},
          {"collectives_total", job.collectives.size()},
          {"layout", layout_json(job.layout)},
          {"nccl", std::move(nccl)}};
}

Json topologies_json(const JobFacts& job) {
  Json out = Json::array();
  for (const Topology& topology : job.topologies) {
    Json links = Json::array();
    for (const auto& row : topology.links) {
      Json cells = Json::array();
      for (const auto& link : row) {
        cells.push_back({{"kind", link_kind_name(link.kind)}, {"nvlinks", link.nvlinks}});
      }
      links.push_back(std::move(cells));
    }
    out.push_back({{"source", topology.source},
                   {"gpus", topology.gpus},
                   {"nics", topology.nics},
                   {"links", std::move(links)},
                   {"numa", topology.numa_node},
                   {"islands", topology.nvlink_islands()}});
  }
  return out;
}

}  // namespace vitrine

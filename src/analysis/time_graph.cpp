// Timing a dependency graph, and the chain that decides its end.
#include <algorithm>

#include "analysis/dependency_graph.h"

namespace vitrine {
namespace {

constexpr int64_t kHandOverNs = 10'000;

int64_t scaled(int64_t ns, ScaleGroup group, const Scale& scale) { return ns * scale[group] / 2; }

struct Times {
  std::vector<int64_t> begin, end;
};

Times times_of(const DependencyGraph& graph, const Scale& scale) {
  Times out;
  out.begin.resize(graph.nodes.size());
  out.end.resize(graph.nodes.size());
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const GraphNode& node = graph.nodes[i];
    int64_t ready = i == 0 ? node.begin_ns : INT64_MIN;
    for (size_t e = node.first_edge; e < graph.edges_end(i); ++e) {
      const GraphEdge& edge = graph.edges[e];
      const int64_t from = edge.from_begin ? out.begin[edge.from] : out.end[edge.from];
      ready = std::max(ready, from + edge.fixed_ns + scaled(edge.scaled_ns, edge.group, scale));
    }
    const int64_t waited = node.delay_ns - node.data_ns + scaled(node.data_ns, kDataGroup, scale);
    out.begin[i] = ready + waited;
    out.end[i] = out.begin[i] + scaled(node.duration_ns, node.group, scale);
  }
  return out;
}

PathPart part_of(const GraphNode& node, DeviceUse use) {
  if (node.device < 0) return PathPart::kHost;
  return use == DeviceUse::kCommunication ? PathPart::kCommunication
         : use == DeviceUse::kCopy        ? PathPart::kCopy
                                          : PathPart::kCompute;
}

}  // namespace

std::vector<int64_t> time_graph(const DependencyGraph& graph, const Scale& scale) {
  return times_of(graph, scale).end;
}

int64_t end_of(const DependencyGraph& graph, const Scale& scale) {
  const std::vector<int64_t> ends = time_graph(graph, scale);
  return *std::max_element(ends.begin(), ends.end());
}

std::vector<ChainPiece> longest_chain(const DependencyGraph& graph,
                                      const std::vector<DeviceSpan>& device) {
  const Times times = times_of(graph, kAsItIs);
  std::vector<ChainPiece> out;
  auto node = static_cast<uint32_t>(std::max_element(times.end.begin(), times.end.end()) -
                                    times.end.begin());
  int64_t cursor = times.end[node];
  const auto spend = [&](int64_t from, PathPart part, int32_t of) {
    from = std::max(from, graph.base_ns);
    if (from >= cursor) return;
    out.push_back({from, cursor, part, of});
    cursor = from;
  };
  bool at_begin = false;
  while (node != 0 && cursor > graph.base_ns) {
    const GraphNode& at = graph.nodes[node];
    if (at.device >= 0 && !at_begin) {
      const DeviceUse use = device[static_cast<size_t>(at.device)].use;
      spend(times.begin[node], part_of(at, use), at.device);
    }
    if (at.delay_ns > 0) {
      spend(times.begin[node] - (at.delay_ns - at.data_ns),
            at.delay_ns - at.data_ns <= kHandOverNs ? PathPart::kBetween : PathPart::kUnknown,
            -1);
      spend(times.begin[node] - at.delay_ns, PathPart::kDataLoading, -1);
    }
    const GraphEdge* latest = nullptr;
    int64_t ready = INT64_MIN;
    for (size_t e = at.first_edge; e < graph.edges_end(node); ++e) {
      const GraphEdge& edge = graph.edges[e];
      const int64_t from = edge.from_begin ? times.begin[edge.from] : times.end[edge.from];
      if (from + edge.fixed_ns + edge.scaled_ns <= ready) continue;
      ready = from + edge.fixed_ns + edge.scaled_ns, latest = &edge;
    }
    if (latest == nullptr) break;
    const GraphNode& from = graph.nodes[latest->from];
    const bool to_host = at.device < 0, from_host = from.device < 0;
    const int64_t since = latest->from_begin ? times.begin[latest->from] : times.end[latest->from];
    if (latest->from_begin) {
      spend(since, part_of(from, device[static_cast<size_t>(from.device)].use), from.device);
    } else if (to_host) {
      spend(since, latest->group == kDataGroup ? PathPart::kDataLoading : PathPart::kHost, -1);
    } else {
      spend(since + latest->scaled_ns, from_host ? PathPart::kLaunch : PathPart::kBetween, -1);
      spend(since, PathPart::kHost, -1);
    }
    node = latest->from, at_begin = latest->from_begin;
  }
  spend(graph.base_ns, PathPart::kUnknown, -1);
  return out;
}

}  // namespace vitrine

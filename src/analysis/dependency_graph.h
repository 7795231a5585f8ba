// A rank's host and device work as a graph of dependencies that can be timed again with parts of it
// made faster.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "analysis/path_facts.h"
#include "analysis/rank_parts.h"

namespace vitrine {

// Work that is made faster together: constant, host, data loading, communication, copies, then one
// a kernel class.
using ScaleGroup = uint8_t;
constexpr ScaleGroup kConstant = 0, kHostGroup = 1, kDataGroup = 2, kCommunicationGroup = 3,
                     kCopyGroup = 4, kFirstClassGroup = 5;
constexpr size_t kScaleGroups = kFirstClassGroup + kKernelClasses;
// In halves of the time now: 2 = as it is, 1 = half, 0 = none.
using Scale = std::array<int64_t, kScaleGroups>;
constexpr Scale kAsItIs = {2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2};

// A node begins at the latest of (time of edge.from + edge's weight) + delays, and ends its
// duration later. Nodes are in an order in which edges lead forward; node 0 is the begin.
struct GraphEdge {
  uint32_t from = 0;
  bool from_begin = false;  // of the other node, which is on the same stream and still running
  ScaleGroup group = kConstant;
  int64_t fixed_ns = 0, scaled_ns = 0;
};
struct GraphNode {
  uint32_t first_edge = 0;
  int32_t device = -1;  // index into RankParts::device; -1: a point of the host's
  ScaleGroup group = kConstant;
  int64_t begin_ns = 0, duration_ns = 0;  // as recorded
  int64_t delay_ns = 0;                   // beyond all edges: the cause isn't known
  int64_t data_ns = 0;                    // of that, while the host was loading data
};

struct DependencyGraph {
  std::vector<GraphNode> nodes;
  std::vector<GraphEdge> edges;  // of node i: [first_edge, next node's first_edge)
  int64_t base_ns = 0;           // where the window begins: work launched before has ended
  int64_t end_ns = 0;            // where all nodes have ended
  bool launches_known = false;   // of most device work
  std::vector<std::string> inferred;

  size_t edges_end(size_t node) const {
    return node + 1 < nodes.size() ? nodes[node + 1].first_edge : edges.size();
  }
};

// Where the graph is to be built: `host` on the host's clock, the first step's begin to the last
// one's end, `marked`; without step marks the whole recording, which begins and ends
// with the device's work.
//
// Edges: the host's points in order (calls of all its threads in one row, for Python runs one at a
// time); launch to kernel by correlation, of which a graph's launch has many; kernels in the order
// of their stream; a stream that waits for an event to the work launched before on other streams; a
// host call that waits, or finds the launch queue full, to the last work that it can have waited
// for. Where a dependency isn't recorded, times decide, and `inferred` says so. As recorded, every
// node falls on its recorded time exactly.
DependencyGraph build_graph(const RankParts& parts, Interval host, bool marked);

// Ends of all nodes.
std::vector<int64_t> time_graph(const DependencyGraph& graph, const Scale& scale);
// When all have ended.
int64_t end_of(const DependencyGraph& graph, const Scale& scale);

// The longest chain, latest first: each piece of time with what it was spent on, without gaps from
// `end_ns` back to `base_ns`.
struct ChainPiece {
  int64_t begin_ns, end_ns;
  PathPart part;
  int32_t device = -1;  // of kernels and copies
};
std::vector<ChainPiece> longest_chain(const DependencyGraph& graph,
                                      const std::vector<DeviceSpan>& device);

}  // namespace vitrine

// How long a collective takes on a topology: NCCL's own model of latency and bandwidth.
#pragma once

#include "machines/cluster.h"
#include "plan/plan_ops.h"

namespace vitrine {

// A group of ranks as it lies on the cluster: `per_node` of its ranks share a node.
struct GroupPlace {
  int ranks = 1, per_node = 1;
  int nodes() const { return per_node > 0 ? (ranks + per_node - 1) / per_node : 1; }
};
// Ranks that are `stride` apart in the numbering of the cluster.
GroupPlace place_group(const Cluster& cluster, int ranks, int64_t stride);

// Nanoseconds of one collective of `bytes` (nccl-tests' "size"; of the whole buffer) over the
// group, the best of NCCL's protocols (LL, LL128, Simple) over rings, and over trees for all-reduce
// on several nodes, when nothing else uses the links. Constants: NCCL 2.2x src/graph/tuning.cc, as
// far as they are public facts; link efficiencies as nccl-tests measures them on DGX machines.
// `copies` (all-to-all): that many of an element's copies go to ranks drawn at random; those for
// one node cross the network once; with `once_a_rank` those for one rank are sent once.
double collective_ns(const Cluster& cluster,
                     PlanCollective kind,
                     double bytes,
                     GroupPlace group,
                     double copies = 1,
                     bool once_a_rank = false);

// Bus bandwidth that rings of the group reach with large buffers, bytes/s.
double ring_bandwidth(const Cluster& cluster, GroupPlace group);

// One message from a rank to one other.
double send_ns(const Cluster& cluster, double bytes, bool same_node);

}  // namespace vitrine

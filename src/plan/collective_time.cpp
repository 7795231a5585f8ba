// NCCL's model of collectives.
#include "plan/collective_time.h"

#include <algorithm>
#include <cmath>

namespace vitrine {
namespace {

// Share of the link's and the network's rate that large collectives get (payload against wire).
constexpr double kLinkShare = 0.78, kPcieShare = 0.55, kNetworkShare = 0.88;
// Microseconds: of starting, and a hop over the link, PCIe and the network, by protocol.
struct Protocol {
  double base, link_hop, pcie_hop, network_hop;
  double bandwidth;  // share of Simple's
};
constexpr Protocol kProtocols[] = {
    {6.6, 0.6, 1.0, 2.7, 0.25},   // LL
    {14.0, 1.9, 2.5, 4.0, 0.85},  // LL128
    {8.4, 3.4, 5.7, 14.0, 1.0},   // Simple
};

// NCCL's hops of LL128, which the profile's latencies are of: other protocols in proportion.
constexpr double kLinkHop = 1900, kPcieHop = 2500, kNetworkHop = 4000;
double against(double measured_ns, double usual_ns) {
  return measured_ns > 0 ? measured_ns / usual_ns : 1;
}

bool over_pcie(const Cluster& cluster, GroupPlace group) {
  return cluster.links == NodeLinks::kPcie ||
         (cluster.links == NodeLinks::kPairs && group.per_node > cluster.island);
}

}  // namespace

GroupPlace place_group(const Cluster& cluster, int ranks, int64_t stride) {
  GroupPlace place;
  place.ranks = ranks;
  const int64_t fit = std::max<int64_t>(1, cluster.gpus_per_node / std::max<int64_t>(1, stride));
  place.per_node = static_cast<int>(std::min<int64_t>(ranks, fit));
  return place;
}

double ring_bandwidth(const Cluster& cluster, GroupPlace group) {
  double bandwidth = 1e18;
  if (group.per_node > 1) {
    bandwidth = over_pcie(cluster, group) ? cluster.pcie_bytes_per_s * kPcieShare
                                          : cluster.link_bytes_per_s * kLinkShare;
  }
  if (group.nodes() > 1) {
    // Each of the group's cards in a node brings a network card of its own.
    bandwidth = std::min(bandwidth, cluster.network_bytes_per_s * group.per_node * kNetworkShare);
  }
  return std::max(bandwidth, 1.0);
}

double collective_ns(const Cluster& cluster,
                     PlanCollective kind,
                     double bytes,
                     GroupPlace group,
                     double copies,
                     bool once_a_rank) {
  if (group.ranks <= 1 || kind == PlanCollective::kNone) return 0;
  const double n = group.ranks, nodes = group.nodes();
  const double bandwidth = ring_bandwidth(cluster, group) * cluster.efficiency.communication;
  const bool reduce_all = kind == PlanCollective::kAllReduce;
  const double steps = reduce_all ? 2 * (n - 1) : n - 1;
  const double far = nodes > 1 ? (reduce_all ? 2 * nodes : nodes) : 0;
  // Of `copies` copies to places drawn among `places`, the share that is sent when each place gets
  // one.
  const auto sent_once = [&](double places) {
    return places * (1 - std::pow(1 - 1 / places, copies)) / copies;
  };
  double moved = bytes * (n - 1) / n * (reduce_all ? 2 : 1);
  if (once_a_rank) moved *= sent_once(n);
  double rate = bandwidth;
  if (kind == PlanCollective::kAllToAll && nodes > 1) {
    // What leaves the node goes over the rank's own network card; the rest over the link.
    const double outside = bytes * sent_once(nodes) * (nodes - 1) / nodes;
    const double inside = moved;
    const double link = over_pcie(cluster, group) ? cluster.pcie_bytes_per_s * kPcieShare
                                                  : cluster.link_bytes_per_s * kLinkShare;
    moved = 1;
    rate = cluster.efficiency.communication /
           std::max(outside / (cluster.network_bytes_per_s * kNetworkShare), inside / link);
  }
  const bool pcie = over_pcie(cluster, group) || group.per_node == 1;
  const double near =
      against(cluster.link_latency_ns, cluster.links == NodeLinks::kPcie ? kPcieHop : kLinkHop);
  const double far_scale = against(cluster.network_latency_ns, kNetworkHop);
  double best = 1e300;
  for (const Protocol& p : kProtocols) {
    const double hop = (pcie ? p.pcie_hop : p.link_hop) * near;
    const double network_hop = p.network_hop * far_scale;
    const double ring =
        p.base + (steps - std::min(far, steps)) * hop + std::min(far, steps) * network_hop;
    best = std::min(best, ring * 1e3 + moved / (rate * p.bandwidth) * 1e9);
    if (reduce_all && nodes > 1) {
      const double tree = p.base + 2 * ((n / nodes - 1) * hop + std::log2(nodes) * network_hop);
      best = std::min(best, tree * 1e3 + moved / (rate * p.bandwidth * 0.92) * 1e9);
    }
  }
  return best;
}

double send_ns(const Cluster& cluster, double bytes, bool same_node) {
  if (bytes <= 0) return 0;
  if (!same_node) return 14e3 + bytes / (cluster.network_bytes_per_s * kNetworkShare) * 1e9;
  const bool pcie = cluster.links == NodeLinks::kPcie;
  const double rate =
      pcie ? cluster.pcie_bytes_per_s * kPcieShare : cluster.link_bytes_per_s * kLinkShare;
  return 8e3 + bytes / rate * 1e9;
}

}  // namespace vitrine

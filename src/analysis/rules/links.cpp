// Links between ranks, from logs and topologies.
#include "analysis/rules/links.h"

#include <algorithm>
#include <map>
#include <set>

namespace vitrine {
namespace {

bool names_infiniband(const std::string& device) {
  return device.find("mlx") != std::string::npos || device.find("/IB") != std::string::npos ||
         device.find("/RoCE") != std::string::npos || device.starts_with("ib");
}

}  // namespace

LinkEvidence link_evidence(const JobFacts& job) {
  LinkEvidence out;
  for (const Topology& topology : job.topologies) {
    for (size_t i = 0; i < topology.gpus.size() && i < topology.links.size(); ++i) {
      for (size_t j = 0; j < topology.gpus.size() && j < topology.links[i].size(); ++j) {
        out.nvlink = out.nvlink || topology.links[i][j].kind == LinkKind::kNvlink;
      }
    }
    for (const std::string& nic : topology.nics) {
      out.infiniband_card = out.infiniband_card || names_infiniband(nic);
    }
  }
  std::set<std::string> hosts;
  for (const RankFacts& rank : job.ranks) {
    if (!rank.host.empty()) hosts.insert(rank.host);
  }
  for (const NcclFacts& nccl : job.nccl) {
    for (const NcclFacts::Channel& channel : nccl.channels) {
      const std::string& via = channel.transport;
      if (via.starts_with("P2P")) {
        ++out.p2p;
      } else if (via.starts_with("SHM")) {
        ++out.shared_memory;
      } else if (via.starts_with("NET/IB")) {
        ++out.network_ib;
        out.ib_without_rdma += channel.direct_rdma ? 0 : 1;
      } else if (via.starts_with("NET/Socket")) {
        ++out.network_socket;
      } else if (via.starts_with("NET")) {
        ++out.network_other;
      }
    }
    for (const std::string& device : nccl.network_devices) {
      out.infiniband_card = out.infiniband_card || names_infiniband(device);
    }
    for (const auto& [name, value] : nccl.environment) out.environment[name] = value;
    for (const NcclFacts::Communicator& one : nccl.communicators) {
      out.hosts = std::max(out.hosts, one.nodes);
    }
    if (!nccl.network.empty()) out.network = nccl.network;
    hosts.insert(nccl.hosts.begin(), nccl.hosts.end());
  }
  out.hosts = std::max(out.hosts, static_cast<int32_t>(hosts.size()));
  return out;
}

std::string host_of(const JobFacts& job, int32_t rank) {
  for (const RankFacts& facts : job.ranks) {
    if (facts.rank == rank && !facts.host.empty()) return facts.host;
  }
  for (const NcclFacts& nccl : job.nccl) {
    if (const auto found = nccl.rank_host.find(rank); found != nccl.rank_host.end()) {
      return found->second;
    }
  }
  return "";
}

int32_t card_of(const JobFacts& job, int32_t rank) {
  for (const NcclFacts& nccl : job.nccl) {
    for (const NcclFacts::Communicator& one : nccl.communicators) {
      if (one.rank != rank || one.ranks != job.world_size) continue;
      // The topology numbers physical cards; CUDA those that CUDA_VISIBLE_DEVICES leaves.
      if (one.nvml_device >= 0) return one.nvml_device;
      if (one.cuda_device >= 0) return one.cuda_device;
    }
  }
  // Launchers number the ranks of a host in the order of its cards.
  const size_t cards = job.topologies.empty() ? 0 : job.topologies.front().gpus.size();
  if (cards == 0 || job.topologies.size() > 1) return -1;
  const auto size = static_cast<int32_t>(cards);
  if (job.world_size % size != 0 && job.world_size > size) return -1;
  return rank % size;
}

bool spans_hosts(const JobFacts& job, const std::vector<int32_t>& ranks) {
  std::set<std::string> hosts;
  for (const int32_t rank : ranks) {
    if (const std::string host = host_of(job, rank); !host.empty()) hosts.insert(host);
  }
  return hosts.size() > 1;
}

size_t islands_of(const JobFacts& job, const std::vector<int32_t>& ranks) {
  if (job.topologies.size() != 1 || ranks.empty() || spans_hosts(job, ranks)) return 0;
  const auto size = job.topologies.front().gpus.size();
  if (ranks.size() > size) return 0;
  std::set<size_t> touched;
  const auto islands = job.topologies.front().nvlink_islands();
  for (const int32_t rank : ranks) {
    const int32_t card = card_of(job, rank);
    if (card < 0) return 0;
    for (size_t i = 0; i < islands.size(); ++i) {
      if (std::find(islands[i].begin(), islands[i].end(), card) != islands[i].end())
        touched.insert(i);
    }
  }
  return touched.size();
}

}  // namespace vitrine

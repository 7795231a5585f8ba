// Rule: traffic between hosts takes a poor path: sockets beside InfiniBand, no GPU-direct RDMA, few
// of the network cards.
#include <algorithm>
#include <map>
#include <set>

#include "analysis/rules/job_view.h"
#include "analysis/rules/links.h"
#include "analysis/rules/rules.h"
#include "core/format.h"

namespace vitrine::rules {
namespace {

struct HostNetwork {
  std::set<int32_t> ranks;
  std::set<std::string> used;  // the numbers behind "NET/IB/" in channels of its ranks
  size_t there = 0;            // network cards in its log
};

// By host, from the communicators of all ranks; empty where the logs do not hold every rank.
std::map<std::string, HostNetwork> networks(const JobFacts& job) {
  int32_t world = job.world_size;
  for (const NcclFacts& nccl : job.nccl) {
    for (const NcclFacts::Communicator& one : nccl.communicators)
      world = std::max(world, one.ranks);
  }
  std::map<std::string, HostNetwork> hosts;
  std::map<int32_t, std::string> host_of_rank;
  for (const NcclFacts& nccl : job.nccl) {
    for (const NcclFacts::Communicator& one : nccl.communicators) {
      if (one.ranks != world || one.rank < 0 || one.host.empty()) continue;
      HostNetwork& host = hosts[one.host];
      host.ranks.insert(one.rank);
      host.there = std::max(host.there, nccl.network_devices.size());
      host_of_rank[one.rank] = one.host;
    }
  }
  if (host_of_rank.size() != static_cast<size_t>(world)) return {};
  for (const NcclFacts& nccl : job.nccl) {
    for (const NcclFacts::Channel& channel : nccl.channels) {
      if (!channel.transport.starts_with("NET/IB/")) continue;
      const std::string rest = channel.transport.substr(7);
      const std::string card = rest.substr(0, rest.find('/'));
      const auto index = static_cast<size_t>(channel.communicator);
      const bool of_world = channel.communicator >= 0 && index < nccl.communicators.size() &&
                            nccl.communicators[index].ranks == world;
      // Which end logged the line is not known: the card counts for both, and for all hosts where
      // the ranks are of another communicator. Too many counted only silence the rule.
      for (auto& [name, host] : hosts) {
        if (!of_world || host.ranks.count(channel.from) > 0 || host.ranks.count(channel.to) > 0) {
          host.used.insert(card);
        }
      }
    }
  }
  return hosts;
}

Finding start(const char* title, double confidence) {
  Finding finding;
  finding.rule = "multi_node";
  finding.title = title;
  finding.confidence = confidence;
  return finding;
}

void judge_cards(const JobFacts& job, RuleOutput& out) {
  const std::map<std::string, HostNetwork> hosts = networks(job);
  if (hosts.empty()) {
    out.abstained.push_back(
        "multi_node: the NCCL logs do not hold all ranks, so which network cards are used is not "
        "known");
    return;
  }
  Finding finding = start("Few of the network cards are used", 0.6);
  for (const auto& [name, host] : hosts) {
    // A rank may do with one card: more are not expected than the host has ranks.
    const size_t expected = std::min(host.there, host.ranks.size());
    if (host.used.empty() || host.used.size() * 2 > expected) continue;
    finding.evidence.push_back(
        {format("host %s: channels of its %zu ranks use %zu of %zu network cards",
                name.c_str(),
                host.ranks.size(),
                host.used.size(),
                host.there)});
  }
  if (finding.evidence.empty()) return;
  finding.summary = format("On %zu of %zu hosts channels between hosts use few network cards: %s.",
                           finding.evidence.size(),
                           hosts.size(),
                           finding.evidence.front().text.c_str());
  finding.cause = "NCCL_IB_HCA restricts them, or the cards of this job sit near few of them.";
  finding.fix = {"leave NCCL_IB_HCA to NCCL; use all cards of a host in one job",
                 "NCCL_CROSS_NIC=1 where rails are joined by switches"};
  out.findings.push_back(std::move(finding));
}

}  // namespace

void multi_node(const JobView& view, RuleOutput& out) {
  const JobFacts& job = *view.job;
  const LinkEvidence links = link_evidence(job);
  if (links.hosts < 2) return;
  if (job.nccl.empty()) {
    out.abstained.push_back(
        "multi_node: the job spans hosts, but no NCCL log says by which path (NCCL_DEBUG=INFO)");
    return;
  }
  const auto channels = [&](int64_t some) {
    return format(
        "%lld of %lld channels between hosts",
        static_cast<long long>(some),
        static_cast<long long>(links.network_ib + links.network_socket + links.network_other));
  };
  const bool sockets = links.network_socket > 0 || links.network == "Socket";
  const auto disabled = links.environment.find("NCCL_IB_DISABLE");
  const bool ib_off = disabled != links.environment.end() && disabled->second == "1";
  if (sockets && (links.infiniband_card || ib_off)) {
    Finding finding = start("Sockets between hosts beside InfiniBand", 0.9);
    finding.summary =
        links.infiniband_card
            ? "NCCL talks TCP between the hosts although they have InfiniBand or RoCE cards."
            : "NCCL talks TCP between the hosts and is told to leave InfiniBand and RoCE cards "
              "aside; whether the hosts have such cards is not known.";
    if (!links.infiniband_card) {
      finding.title = "Sockets between hosts, InfiniBand switched off";
      finding.confidence = 0.5;
    }
    finding.evidence.push_back({"NCCL log: " + channels(links.network_socket) + " by NET/Socket"});
    finding.cause = ib_off
                        ? "NCCL_IB_DISABLE=1 is set."
                        : "The InfiniBand plug-in did not start, or the cards are not visible in "
                          "the container.";
    finding.fix = {
        "unset NCCL_IB_DISABLE; NCCL_IB_HCA=mlx5 chooses the cards",
        "in containers: --device=/dev/infiniband, --ulimit memlock=-1, --cap-add=IPC_LOCK",
        "while on sockets: NCCL_SOCKET_IFNAME names the fastest interface, "
        "NCCL_SOCKET_NTHREADS and NCCL_NSOCKS_PERTHREAD raise its use"};
    out.findings.push_back(std::move(finding));
  }
  if (links.network_ib > 0 && links.ib_without_rdma > 0) {
    Finding finding = start("No GPU-direct RDMA", 0.8);
    if (links.ib_without_rdma * 2 < links.network_ib) finding.severity = Severity::kNote;
    finding.summary = "Traffic over InfiniBand goes through host memory: channels without GDRDMA.";
    finding.evidence.push_back({"NCCL log: " + channels(links.ib_without_rdma) +
                                " by NET/IB without "
                                "GDRDMA"});
    finding.cause =
        "The peer-memory module is missing, or card and network card are too far apart.";
    finding.fix = {"load nvidia-peermem (or use the kernel's DMA-BUF with recent drivers and NCCL)",
                   "NCCL_NET_GDR_LEVEL=PHB or SYS where the topology makes NCCL refuse it"};
    out.findings.push_back(std::move(finding));
  }
  if (links.network_ib > 0) judge_cards(job, out);
}

}  // namespace vitrine::rules

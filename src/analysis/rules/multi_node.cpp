// Rule: traffic between hosts takes a poor path: sockets beside InfiniBand, no GPU-direct RDMA, few
// of the network cards.
#include <algorithm>
#include <set>

#include "analysis/rules/links.h"
#include "analysis/rules/rules.h"
#include "core/format.h"

namespace vitrine::rules {
namespace {

// Network cards of a host that channels use: the number behind "NET/IB/".
size_t used_cards(const JobFacts& job) {
  std::set<std::string> used;
  for (const NcclFacts& nccl : job.nccl) {
    for (const NcclFacts::Channel& channel : nccl.channels) {
      if (!channel.transport.starts_with("NET/IB/")) continue;
      const std::string rest = channel.transport.substr(7);
      used.insert(rest.substr(0, rest.find('/')));
    }
  }
  return used.size();
}

size_t cards_there(const JobFacts& job) {
  size_t there = 0;
  for (const NcclFacts& nccl : job.nccl) there = std::max(there, nccl.network_devices.size());
  return there;
}

Finding start(const char* title, double confidence) {
  Finding finding;
  finding.rule = "multi_node";
  finding.title = title;
  finding.confidence = confidence;
  return finding;
}

}  // namespace

void multi_node(const JobFacts& job, RuleOutput& out) {
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
        "NCCL talks TCP between the hosts although they have InfiniBand or RoCE cards.";
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
  const size_t used = used_cards(job), there = cards_there(job);
  if (used > 0 && used * 2 <= there) {
    Finding finding = start("Few of the network cards are used", 0.6);
    finding.summary = format("Channels between hosts use %zu of %zu network cards.", used, there);
    finding.evidence.push_back({finding.summary});
    finding.cause = "NCCL_IB_HCA restricts them, or the cards of this job sit near few of them.";
    finding.fix = {"leave NCCL_IB_HCA to NCCL; use all cards of a host in one job",
                   "NCCL_CROSS_NIC=1 where rails are joined by switches"};
    out.findings.push_back(std::move(finding));
  }
}

}  // namespace vitrine::rules

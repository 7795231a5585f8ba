// What is known of the links between cards: the matrix of `nvidia-smi topo -m`, and what NCCL says
// in its log of how it uses them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace vitrine {

// The best link between two devices of one host, best last.
enum class LinkKind : uint8_t {
  kUnknown,
  kSystem,      // SYS, SOC: across the sockets' interconnect
  kNode,        // NODE: across host bridges of one socket
  kHostBridge,  // PHB
  kSwitches,    // PXB: several PCIe switches
  kSwitch,      // PIX: one PCIe switch
  kNvlink,      // NV#, XGMI
  kSelf
};
const char* link_kind_name(LinkKind kind);

struct Topology {
  std::string source;
  std::vector<std::string> gpus;  // "GPU0", ...
  std::vector<std::string>
      nics;  // "mlx5_0", "NIC0", ...; legend names applied where the text has one
  struct Link {
    LinkKind kind = LinkKind::kUnknown;
    int32_t nvlinks = 0;  // the number behind NV
  };
  // Rows and columns: gpus, then nics.
  std::vector<std::vector<Link>> links;
  std::vector<std::string> cpu_affinity;  // by gpu; "" = not said
  std::vector<int32_t> numa_node;         // by gpu; -1 = not said
  std::vector<std::string> warnings;

  // GPUs joined by NVLink, directly or through others; each list ascending. GPUs without NVLink are
  // islands of one.
  std::vector<std::vector<int32_t>> nvlink_islands() const;
  // Whether every pair of `gpus` has a direct NVLink.
  bool nvlink_clique(const std::vector<int32_t>& gpus) const;
};

struct NcclFacts {
  std::string source;
  std::string version;  // "2.27.5+cuda12.9"
  struct Channel {
    int32_t from = -1, to = -1;  // ranks of the communicator
    std::string transport;       // "P2P/CUMEM", "SHM/direct/direct", "NET/IB/0", "NET/Socket/0"
    bool direct_rdma = false;    // GDRDMA
    int32_t number = -1;
    int32_t communicator = -1;  // index of the one that `from` and `to` count in; -1 = not known
  };
  struct Communicator {
    std::string id;  // address or commId
    int32_t rank = -1, ranks = 0, nodes = 0, local_ranks = 0;
    int32_t cuda_device = -1;
    int32_t nvml_device = -1;  // physical number; -1 = not said
    std::string bus_id;
    int32_t channels = 0;  // for collectives; 0 = not said
    std::string host;
  };
  std::vector<Communicator> communicators;
  std::vector<Channel> channels;
  std::vector<std::string> hosts;                  // in order of first appearance
  std::map<int32_t, std::string> rank_host;        // of the first communicator that spans all
  std::string network;                             // "IB", "Socket", ... of "Using network"
  std::vector<std::string> network_devices;        // "mlx5_0:1/RoCE", "eth0"
  std::map<std::string, std::string> environment;  // NCCL_... set by the user
  std::vector<std::string> tuning;    // "AllReduce: 8388608 Bytes -> Algo Ring proto LL128"
  std::vector<std::string> problems;  // WARN lines and failed plug-ins, each once, with a count
  std::vector<std::string> warnings;  // of the reader
  int64_t lines = 0;
};

}  // namespace vitrine

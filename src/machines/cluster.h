// A cluster of equal cards: how many, what joins them, what stands behind them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "machines/accelerators.h"

namespace vitrine {

// How the cards of a node reach each other.
enum class NodeLinks : uint8_t {
  kSwitch,  // every card to every other at full link speed (NVSwitch, Infinity Fabric mesh)
  kPairs,   // bridges within islands of `island` cards, PCIe between them
  kPcie,    // PCIe alone
};

// Software and time that efficiency constants were fitted to: what a card reaches is the card's and
// the stack's together.
struct Efficiency {
  std::string era;  // "megatron 2021-23", "measured by vitrine calibrate"
  // Of the peaks of products, what a lower power limit than the peaks' leaves of the clock.
  double power = 1;
  double ceiling = 0.75;  // of the peak, what single large products reach in a loop
  // As `ceiling`, of fp8's and fp4's peaks: power and operands' traffic limit them more; 0: as
  // `ceiling`.
  double narrow_ceiling = 0;
  // Of fp8's and fp4's shares of their peaks against bf16's, where the software's own is known; 0:
  // as the ceilings.
  double narrow_share = 0;
  double matmul = 0.75;  // of the peak, for a large matrix product that fills the card
  // As `matmul` at most, of kernels that use the matrix instructions of the generation before
  // (fused attention before its third generation, on Hopper and later).
  double older_instructions = 1;
  // This engine's products end in swiglu (ops/gpu/linear_swiglu.cpp): on Hopper.
  bool swiglu_in_products = false;
  // Multiply-adds that filling and draining a tile's pipeline is worth, along k; persistent kernels
  // load the next tile while they write the last.
  double fill = 96;
  double memory = 0.80;      // of the memory bandwidth, for a large pass
  double launch_ns = 6000;   // host time to issue one operation
  double communication = 1;  // of the bandwidth that NCCL's model gives collectives
  std::string fitted_to;     // rows or runs; "" = an assumption
};

struct Cluster {
  const Accelerator* card = nullptr;
  std::string profile;  // "H100", the name the user gave
  int gpus = 1, gpus_per_node = 8;
  NodeLinks links = NodeLinks::kSwitch;
  int island = 8;
  int multiprocessors = 0;         // for wave quantisation; 0: not known, none assumed
  double link_bytes_per_s = 0;     // a card and direction, inside an island
  double pcie_bytes_per_s = 0;     // a card and direction, across islands and to the host
  double network_bytes_per_s = 0;  // a card and direction, between nodes (the node's NICs shared)
  double link_latency_ns = 0, network_latency_ns = 0;  // a hop of NCCL's LL128; 0: its table's
  double host_memory_bytes = 0;                        // a node
  double host_flops_per_s = 0, host_bytes_per_s = 0;   // a node: for optimizers on the host
  int cards_per_host_link = 1;                         // that share `pcie_bytes_per_s` to the host
  double disk_bytes_per_s = 0, disk_bytes = 0;         // a node
  double context_bytes = 0;   // driver, runtime and library buffers on a card
  double price_per_hour = 0;  // a card; 0: not known
  Efficiency efficiency;
  std::vector<Efficiency> stacks;    // other software on the same card, by their eras
  std::vector<std::string> sources;  // "value: where it is from, how sure", one each
  // Cards that are allotted together where a job need not take whole nodes (the trays of a rack
  // that is one NVLink domain); 0: whole nodes.
  int tray = 0;
  int nodes() const { return (gpus + gpus_per_node - 1) / gpus_per_node; }
};

// "64xH100", "8xA100-40GB", "H200" (one); capitals, '-', '_' and spaces do not matter. A node is
// the profile's; where cards come in trays, as many of a node as spread the job evenly.
//
// `profile_file`: JSON with any of the fields above over a shipped profile ("base"), as `vitrine
// calibrate` writes it; "64" is then enough, and "64xNAME" has to name the base or the file's
// "name". A file whose "card" is an object needs no base. "card" is the name of an accelerator, or
// an object of Accelerator's fields over one
// ("base"). Throws ConfigError with the nearest known name or key, IoError for an unreadable file.
Cluster make_cluster(const std::string& gpus, const std::string& profile_file = "");
// Whether "64xNAME" may be said with that profile file. Throws IoError, ConfigError.
bool is_of_profile(const std::string& profile_file, const std::string& name);
const std::vector<std::string>& card_profiles();
// Prices the cluster by other software on its card: the one whose era is `name`, else has it in it
// (capitals and spaces do not matter; the last of several, which is the newest). Throws ConfigError
// with the known ones.
void choose_stack(Cluster& cluster, const std::string& name);
bool has_stack(const Cluster& cluster, const std::string& name);
// What joins the cards and stands behind them, over a profile: "dgx-a100", "dgx-h100",
// "hgx-pcie-pairs", "kuae", ..., or the path of a file with such fields. Throws likewise.
const std::vector<std::string>& topologies();
void apply_topology(Cluster& cluster, const std::string& topology);

}  // namespace vitrine

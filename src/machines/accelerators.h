// Facts of accelerators: peaks, memory, links, each with where it is from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace vitrine {

// Of one card. Rates are dense peaks (without structured sparsity); 0 = none, or not known.
struct Accelerator {
  const char* name;       // as used in text: "NVIDIA H200"
  const char* link_name;  // "NVLink", "Infinity Fabric", "MTLink"; "" = no link beside PCIe
  int64_t memory_bytes;   // as it is sold: GB of 10^9
  double bf16_flops_per_s, fp16_flops_per_s, fp8_flops_per_s, tf32_flops_per_s, fp32_flops_per_s;
  double memory_bytes_per_s;
  double link_bytes_per_s;  // per direction, all links of the card together
  double pcie_bytes_per_s;  // per direction
  const char* source;
  double fp4_flops_per_s = 0;
};

// The card that a driver or a trace names so ("NVIDIA H100 80GB HBM3", "Tesla V100-SXM2-32GB",
// "AMD Instinct MI300X"). Nothing for names not listed, and for those that leave open which of two
// cards it is.
const Accelerator* find_accelerator(const std::string& reported_name);
const std::vector<Accelerator>& accelerators();

// Bus bandwidth (nccl-tests) that a collective of `bytes` reaches between cards of one host joined
// by their own link, bytes/s; 0 where the card has no such link.
//   link x 0.71 x bytes / (bytes + 15 MiB) for all-reduce, x 0.56 and 18 MiB for the others,
// which is within 15 % of NCCL 2.28 on two H200 (450 GB/s) at 16, 256 and 1024 MiB: all-reduce 169,
// 275, 315, all-gather 118, 210, 250 GB/s. An estimate for other cards and more of them.
double expected_bus_bandwidth(const Accelerator& card,
                              const std::string& collective,
                              int64_t bytes);

}  // namespace vitrine

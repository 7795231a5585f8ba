// The table of cards, and how their names are recognised.
#include "machines/accelerators.h"

#include <algorithm>
#include <cctype>

namespace vitrine {
namespace {

constexpr int64_t kGB = 1'000'000'000;
constexpr double kTera = 1e12, kGiga = 1e9;
constexpr double kPcie3 = 15.75e9, kPcie4 = 31.5e9, kPcie5 = 63e9;

// Name, link, memory; bf16, fp16, fp8, tf32, fp32; memory/s, link/s, PCIe/s; source; fp4.
const std::vector<Accelerator> kAccelerators = {
    {"NVIDIA V100 SXM2 16GB",
     "NVLink",
     16 * kGB,
     0,
     125 * kTera,
     0,
     0,
     15.7 * kTera,
     900 * kGiga,
     150 * kGiga,
     kPcie3,
     "NVIDIA V100 data sheet"},
    {"NVIDIA V100 SXM2 32GB",
     "NVLink",
     32 * kGB,
     0,
     125 * kTera,
     0,
     0,
     15.7 * kTera,
     900 * kGiga,
     150 * kGiga,
     kPcie3,
     "NVIDIA V100 data sheet"},
    {"NVIDIA A100 40GB",
     "NVLink",
     40 * kGB,
     312 * kTera,
     312 * kTera,
     0,
     156 * kTera,
     19.5 * kTera,
     1555 * kGiga,
     300 * kGiga,
     kPcie4,
     "NVIDIA A100 data sheet"},
    {"NVIDIA A100 80GB",
     "NVLink",
     80 * kGB,
     312 * kTera,
     312 * kTera,
     0,
     156 * kTera,
     19.5 * kTera,
     2039 * kGiga,
     300 * kGiga,
     kPcie4,
     "NVIDIA A100 data sheet"},
    {"NVIDIA H100 SXM",
     "NVLink",
     80 * kGB,
     989.4 * kTera,
     989.4 * kTera,
     1978.9 * kTera,
     494.7 * kTera,
     67 * kTera,
     3350 * kGiga,
     450 * kGiga,
     kPcie5,
     "NVIDIA H100 data sheet"},
    {"NVIDIA H100 PCIe",
     "NVLink bridge",
     80 * kGB,
     756 * kTera,
     756 * kTera,
     1513 * kTera,
     378 * kTera,
     51 * kTera,
     2000 * kGiga,
     300 * kGiga,
     kPcie5,
     "NVIDIA H100 data sheet"},
    {"NVIDIA H800",
     "NVLink",
     80 * kGB,
     989.4 * kTera,
     989.4 * kTera,
     1978.9 * kTera,
     494.7 * kTera,
     67 * kTera,
     3350 * kGiga,
     200 * kGiga,
     kPcie5,
     "MegaScale-MoE, table 4"},
    {"NVIDIA H200",
     "NVLink",
     141 * kGB,
     989.4 * kTera,
     989.4 * kTera,
     1978.9 * kTera,
     494.7 * kTera,
     67 * kTera,
     4800 * kGiga,
     450 * kGiga,
     kPcie5,
     "NVIDIA H200 data sheet"},
    {"NVIDIA B200",
     "NVLink",
     180 * kGB,
     2250 * kTera,
     2250 * kTera,
     4500 * kTera,
     1125 * kTera,
     75 * kTera,
     8000 * kGiga,
     900 * kGiga,
     kPcie5,
     "NVIDIA Blackwell data sheet",
     9000 * kTera},
    {"NVIDIA B300",
     "NVLink",
     288 * kGB,
     2250 * kTera,
     2250 * kTera,
     4500 * kTera,
     1125 * kTera,
     75 * kTera,
     8000 * kGiga,
     900 * kGiga,
     kPcie5,
     "NVIDIA HGX B300 data sheet",
     13500 * kTera},
    {"NVIDIA GB200",
     "NVLink",
     186 * kGB,
     2500 * kTera,
     2500 * kTera,
     5000 * kTera,
     1250 * kTera,
     80 * kTera,
     8000 * kGiga,
     900 * kGiga,
     0,
     "NVIDIA GB200 NVL72 data sheet",
     10000 * kTera},
    {"NVIDIA GB300",
     "NVLink",
     288 * kGB,
     2500 * kTera,
     2500 * kTera,
     5000 * kTera,
     1250 * kTera,
     80 * kTera,
     8000 * kGiga,
     900 * kGiga,
     0,
     "NVIDIA GB300 NVL72 data sheet",
     15000 * kTera},
    {"NVIDIA GeForce RTX 4090",
     "",
     24 * kGB,
     165.2 * kTera,
     165.2 * kTera,
     330.3 * kTera,
     82.6 * kTera,
     82.6 * kTera,
     1008 * kGiga,
     0,
     kPcie4,
     "NVIDIA Ada whitepaper, with fp32 accumulation"},
    // PCIe 5 with 8 lanes.
    {"NVIDIA GeForce RTX 5060 Ti 16GB",
     "",
     16 * kGB,
     47.4 * kTera,
     47.4 * kTera,
     94.8 * kTera,
     23.7 * kTera,
     23.7 * kTera,
     448 * kGiga,
     0,
     kPcie4,
     "NVIDIA's product page (fp32), tensor rates by the RTX Blackwell whitepaper's ratios, with "
     "fp32 "
     "accumulation",
     379 * kTera},
    {"NVIDIA RTX PRO 6000 Blackwell",
     "",
     96 * kGB,
     503.8 * kTera,
     503.8 * kTera,
     1007.6 * kTera,
     251.9 * kTera,
     126 * kTera,
     1792 * kGiga,
     0,
     kPcie5,
     "NVIDIA RTX PRO Blackwell whitepaper, workstation edition",
     2015.2 * kTera},
    {"AMD Instinct MI300X",
     "Infinity Fabric",
     192 * kGB,
     1307.4 * kTera,
     1307.4 * kTera,
     2614.9 * kTera,
     653.7 * kTera,
     163.4 * kTera,
     5300 * kGiga,
     448 * kGiga,
     kPcie5,
     "AMD Instinct MI300X data sheet"},
    {"MTT S4000",
     "MTLink",
     48 * kGB,
     100 * kTera,
     100 * kTera,
     0,
     50 * kTera,
     25 * kTera,
     768 * kGiga,
     120 * kGiga,
     kPcie5,
     "press at its presentation; the link's 240 GB/s taken for both directions together"},
    {"MTT S5000",
     "MTLink",
     80 * kGB,
     0,
     0,
     1000 * kTera,
     0,
     0,
     1600 * kGiga,
     392 * kGiga,
     kPcie5,
     "press; bf16 is not published; the link's 784 GB/s taken for both directions together"},
};

std::string squeezed(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      result += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    }
  }
  return result;
}

const char* canonical(const std::string& reported) {
  const std::string name = squeezed(reported);
  const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
  if (has("MI300X")) return "AMD Instinct MI300X";
  if (has("MTTS4000")) return "MTT S4000";
  if (has("MTTS5000")) return "MTT S5000";
  if (has("RTX4090") && !has("LAPTOP") && !has("4090D")) return "NVIDIA GeForce RTX 4090";
  if (has("RTX5060TI") && !has("LAPTOP")) {
    return has("16GB") ? "NVIDIA GeForce RTX 5060 Ti 16GB" : nullptr;  // there is one with 8 GB
  }
  if (has("RTXPRO6000") && has("BLACKWELL")) {
    // The server and Max-Q editions have lower clocks.
    return has("WORKSTATION") && !has("MAXQ") ? "NVIDIA RTX PRO 6000 Blackwell" : nullptr;
  }
  if (has("GB300")) return "NVIDIA GB300";
  if (has("B300")) return "NVIDIA B300";
  if (has("GB200")) return "NVIDIA GB200";
  if (has("B200")) return "NVIDIA B200";
  if (has("GH200")) return nullptr;  // sold with two kinds of memory
  if (has("H200")) return has("NVL") ? nullptr : "NVIDIA H200";
  if (has("H800")) return has("PCIE") ? nullptr : "NVIDIA H800";
  if (has("H100")) {
    if (has("PCIE")) return "NVIDIA H100 PCIe";
    // The 64, 94 and 96 GB variants have other memory.
    return has("80GBHBM3") || has("SXM") ? "NVIDIA H100 SXM" : nullptr;
  }
  // A100 PCIe cards compute alike but have a bridge to one neighbour only.
  if (has("A100") && has("SXM") && has("80GB")) return "NVIDIA A100 80GB";
  if (has("A100") && has("SXM") && has("40GB")) return "NVIDIA A100 40GB";
  if (has("V100") && has("SXM2") && has("32GB")) return "NVIDIA V100 SXM2 32GB";
  if (has("V100") && has("SXM2") && has("16GB")) return "NVIDIA V100 SXM2 16GB";
  return nullptr;
}

}  // namespace

const std::vector<Accelerator>& accelerators() { return kAccelerators; }

const Accelerator* find_accelerator(const std::string& reported_name) {
  const char* name = canonical(reported_name);
  if (name == nullptr) return nullptr;
  const auto found =
      std::find_if(kAccelerators.begin(), kAccelerators.end(), [&](const Accelerator& card) {
        return std::string(card.name) == name;
      });
  return found == kAccelerators.end() ? nullptr : &*found;
}

double expected_bus_bandwidth(const Accelerator& card,
                              const std::string& collective,
                              int64_t bytes) {
  const bool reduces_all = collective == "all_reduce";
  const double share = reduces_all ? 0.71 : 0.56;
  const double half = (reduces_all ? 15.0 : 18.0) * 1024 * 1024;
  const auto size = static_cast<double>(bytes);
  return size <= 0 ? 0 : card.link_bytes_per_s * share * size / (size + half);
}

}  // namespace vitrine

// Reads what NCCL (or RCCL) says with NCCL_DEBUG=INFO, from a log of its own or amid a job's
// output.
#pragma once

#include <string>
#include <string_view>

#include "timeline/interconnect.h"

namespace vitrine {

// Plain or gzipped, line by line; NCCL 2.7 to today. Lines of several ranks may be mixed, with
// launchers' prefixes, and even cut into each other: a line that can't be used whole is counted in
// `warnings`.
// - communicators: one for each rank of each communicator, in order of appearance; `nodes` of old
//   versions is the number of hosts where all of its ranks are seen.
// - channels: each connection once. Network connections that both ends report count once: the
//   receiver's line is used only where the sender's is missing.
// - network: the first rank's; others are warned of. network_devices: those found, whether used or
//   not ("mlx5_0:1/RoCE" of InfiniBand, "eth0" of sockets).
// - environment: "set by environment to", and the shell's own `export NCCL_...=` in a job's output.
// - tuning: each choice once, at most kMostTuning.
// Throws IoError that names the file: missing, empty, no line of NCCL.
NcclFacts read_nccl_log(const std::string& path);
constexpr size_t kMostTuning = 1000;

// Whether NCCL speaks in this line.
bool is_nccl_line(std::string_view line);

}  // namespace vitrine

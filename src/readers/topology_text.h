// Reads the matrix of links between cards: `nvidia-smi topo -m`, and ROCm's `rocm-smi
// --showtopotype` and `amd-smi topology`.
#pragma once

#include <string>
#include <string_view>

#include "timeline/interconnect.h"

namespace vitrine {

// Plain or gzipped; tabs or blanks between columns, terminal colours, names of today and of old
// (SOC), XGMI as NVLink, other text around the table. NIC names come from the legend where there is
// one. A cell that is no link stays kUnknown, and its row's affinity is not read; a missing row is
// filled from the other rows' columns; both with a warning. `numa_node` is -1 too where the cell
// names several nodes. Of several tables the first that holds links is read. Throws IoError that
// names the file when there is no table.
Topology read_topology(const std::string& path);

// Whether `text` (the beginning of a file) holds such a table.
bool looks_like_topology(std::string_view text);

}  // namespace vitrine

// What NVTX ranges of training jobs mean, by their names.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "timeline/timeline.h"

namespace vitrine {

struct NvtxName {
  std::string name;    // without what emit_nvtx appends
  std::string shapes;  // of "sizes = [[4, 8], []]"
  SpanKind kind = SpanKind::kRegion;
};
// "aten::mul, op_id = 317177, sizes = [[4], []]" -> {"aten::mul", "[[4], []]", kOperation}
NvtxName nvtx_name(std::string_view text);

struct StepName {
  std::string family;   // "iteration", "" = no step
  int64_t number = -1;  // -1 = none in the name
};
// "Iteration 12" -> {"iteration", 12}; "train_step" -> {"train_step", -1}
StepName step_name(std::string_view name);

// The collective that a range of NCCL or of PyTorch's process group stands for: "nccl:all_to_all"
// -> "all_to_all", "ncclAllReduce" -> "all_reduce"; "" = none.
std::string collective_of_range(std::string_view name);

// The number behind "Message size [bytes]" in NCCL's payload as JSON; 0 = not there.
int64_t message_bytes(std::string_view json);

}  // namespace vitrine

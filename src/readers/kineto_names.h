// What Kineto's words mean: categories of events, collectives, dtypes.
#pragma once

#include <string>
#include <string_view>

#include "timeline/timeline.h"

namespace vitrine {

enum class KinetoCategory : uint8_t {
  kKernel,
  kCopy,
  kDeviceAnnotation,
  kDeviceSync,  // on a device's stream
  kOperator,
  kRuntime,
  kAnnotation,
  kPython,
  kOther,    // on a host thread
  kIgnored,  // the profiler's own
};
// Names of 2021 ("Operator", "Kernel") and of today.
KinetoCategory kineto_category(std::string_view text);
inline bool on_device(KinetoCategory category) { return category <= KinetoCategory::kDeviceSync; }

// Kernels of NCCL, RCCL, HCCL, MCCL, oneCCL, DeepEP, NVSHMEM, and of symmetric-memory collectives.
bool is_communication_kernel(std::string_view name);
// "_allgather_base" -> "all_gather", ...; unknown words stay.
std::string collective_from_c10d(std::string_view name);
// Of a kernel that has no arguments: "ncclDevKernel_AllGather_RING_LL(...)" -> "all_gather"; "" =
// unknown.
std::string collective_from_kernel(std::string_view name);
SpanKind collective_kind(std::string_view our_name);
// "BFloat16" -> "bf16", ...; unknown words stay.
std::string dtype_from_c10d(std::string_view name);
int64_t dtype_size(std::string_view our_name);  // 0 = unknown
// Bytes that one rank of `group_size` sends by a ring; 0 where that is not known.
int64_t ring_sent_bytes(std::string_view our_name,
                        int64_t in_elements,
                        int64_t out_elements,
                        int64_t element_bytes,
                        int64_t group_size);

// A user annotation or operator that waits for the next batch.
bool is_data_loading(std::string_view name);

}  // namespace vitrine

// Tables of Kineto's, c10d's and NCCL's words.
#include "readers/kineto_names.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <utility>

#include "core/format.h"

namespace vitrine {
namespace {

constexpr std::pair<std::string_view, KinetoCategory> kCategories[] = {
    {"cpu_op", KinetoCategory::kOperator},
    {"cuda_runtime", KinetoCategory::kRuntime},
    {"kernel", KinetoCategory::kKernel},
    {"python_function", KinetoCategory::kPython},
    {"cuda_driver", KinetoCategory::kRuntime},
    {"user_annotation", KinetoCategory::kAnnotation},
    {"gpu_memcpy", KinetoCategory::kCopy},
    {"gpu_memset", KinetoCategory::kCopy},
    {"gpu_user_annotation", KinetoCategory::kDeviceAnnotation},
    {"cuda_sync", KinetoCategory::kDeviceSync},
    {"xpu_runtime", KinetoCategory::kRuntime},
    {"xpu_driver", KinetoCategory::kRuntime},
    {"Operator", KinetoCategory::kOperator},
    {"Runtime", KinetoCategory::kRuntime},
    {"Kernel", KinetoCategory::kKernel},
    {"Memcpy", KinetoCategory::kCopy},
    {"Memset", KinetoCategory::kCopy},
    {"ProfilerStep", KinetoCategory::kAnnotation},
    {"UserAnnotation", KinetoCategory::kAnnotation},
    {"Trace", KinetoCategory::kIgnored},
    {"cuda_event", KinetoCategory::kIgnored},
};

constexpr std::pair<std::string_view, std::string_view> kCollectives[] = {
    {"_allgather_base", "all_gather"},
    {"allgather", "all_gather"},
    {"allgather_into_tensor_coalesced", "all_gather"},
    {"allgather_coalesced", "all_gather"},
    {"_reduce_scatter_base", "reduce_scatter"},
    {"reduce_scatter_tensor_coalesced", "reduce_scatter"},
    {"allreduce", "all_reduce"},
    {"allreduce_coalesced", "all_reduce"},
    {"all_to_allv", "all_to_all_v"},
    {"alltoall", "all_to_all"},
    {"alltoall_base", "all_to_all"},
    {"recv", "receive"},
};

constexpr std::pair<std::string_view, std::string_view> kDtypes[] = {{"Float", "f32"},
                                                                     {"BFloat16", "bf16"},
                                                                     {"Half", "f16"},
                                                                     {"Double", "f64"},
                                                                     {"Int", "i32"},
                                                                     {"Byte", "u8"}};

constexpr std::pair<std::string_view, int64_t> kDtypeSizes[] = {{"f32", 4},
                                                                {"bf16", 2},
                                                                {"f16", 2},
                                                                {"f64", 8},
                                                                {"i32", 4},
                                                                {"u8", 1},
                                                                {"Long", 8},
                                                                {"Short", 2},
                                                                {"Char", 1},
                                                                {"Bool", 1},
                                                                {"Float8_e4m3fn", 1},
                                                                {"Float8_e5m2", 1}};

// In the kernel's lower-case name.
constexpr std::string_view kCommunication[] = {"nccl",
                                               "rccl",
                                               "hccl",
                                               "mccl",
                                               "oneccl",
                                               "deep_ep",
                                               "dpsk::ep::",
                                               "cross_device_reduce",
                                               "multimem_",
                                               "one_shot_all_reduce",
                                               "two_shot_all_reduce",
                                               "nvshmem"};
// DeepEP's, of namespaces that other names merely end in ("myinternode::").
constexpr std::string_view kExpertKernels[] = {"internode::dispatch",
                                               "internode::combine",
                                               "internode::notify",
                                               "internode::cached_notify",
                                               "intranode::dispatch",
                                               "intranode::combine",
                                               "intranode::notify",
                                               "intranode::cached_notify"};

bool contains_name(std::string_view text, std::string_view part) {
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) {
    if (at == 0) return true;
    const char before = text[at - 1];
    if (before != '_' && std::isalnum(static_cast<unsigned char>(before)) == 0) return true;
  }
  return false;
}

template <typename Value, size_t N>
const Value* find(const std::pair<std::string_view, Value> (&table)[N], std::string_view word) {
  for (const auto& [name, value] : table) {
    if (name == word) return &value;
  }
  return nullptr;
}

}  // namespace

KinetoCategory kineto_category(std::string_view text) {
  const KinetoCategory* found = find(kCategories, text);
  return found ? *found : KinetoCategory::kOther;
}

bool is_communication_kernel(std::string_view name) {
  const std::string text = lower(name);
  const auto contains = [&](std::string_view part) { return text.find(part) != text.npos; };
  const auto names = [&](std::string_view part) { return contains_name(text, part); };
  return std::any_of(std::begin(kCommunication), std::end(kCommunication), contains) ||
         std::any_of(std::begin(kExpertKernels), std::end(kExpertKernels), names);
}

std::string collective_from_c10d(std::string_view name) {
  const std::string_view* found = find(kCollectives, name);
  return std::string(found ? *found : name);
}

std::string collective_from_kernel(std::string_view name) {
  const std::string text = lower(name);
  constexpr std::pair<std::string_view, std::string_view> kParts[] = {
      {"allgather", "all_gather"},
      {"reducescatter", "reduce_scatter"},
      {"allreduce", "all_reduce"},
      {"all_reduce", "all_reduce"},
      {"cross_device_reduce", "all_reduce"},
      {"broadcast", "broadcast"},
      {"alltoall", "all_to_all"},
      {"reduce", "reduce"}};
  for (const auto& [part, ours] : kParts) {
    if (text.find(part) != std::string::npos) return std::string(ours);
  }
  return "";
}

SpanKind collective_kind(std::string_view our_name) {
  if (our_name == "all_gather" || our_name == "all_gather_v") return SpanKind::kGather;
  if (our_name == "reduce_scatter" || our_name == "reduce_scatter_v" || our_name == "all_reduce" ||
      our_name == "reduce") {
    return SpanKind::kReduce;
  }
  if (our_name == "send") return SpanKind::kSend;
  if (our_name == "receive") return SpanKind::kReceive;
  return SpanKind::kCollective;
}

std::string dtype_from_c10d(std::string_view name) {
  const std::string_view* found = find(kDtypes, name);
  return std::string(found ? *found : name);
}

int64_t dtype_size(std::string_view our_name) {
  const int64_t* found = find(kDtypeSizes, our_name);
  return found ? *found : 0;
}

int64_t ring_sent_bytes(std::string_view our_name,
                        int64_t in_elements,
                        int64_t out_elements,
                        int64_t element_bytes,
                        int64_t group_size) {
  if (our_name == "send") return in_elements * element_bytes;
  if (group_size < 2) return 0;
  const int64_t others = group_size - 1;
  if (our_name == "all_gather") return in_elements * element_bytes * others;
  if (our_name == "reduce_scatter") return out_elements * element_bytes * others;
  if (our_name == "all_reduce") return 2 * others * (in_elements * element_bytes / group_size);
  if (our_name == "all_to_all") return others * (in_elements * element_bytes / group_size);
  return 0;
}

bool is_data_loading(std::string_view name) {
  const std::string text = lower(name);
  return text.find("dataloader") != std::string::npos || text == "data" || text == "data_loading" ||
         text == "data loading" || text == "data_loader" || text == "next_batch" ||
         text == "next batch";
}

}  // namespace vitrine

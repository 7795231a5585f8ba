// Names of NVTX ranges taken apart.
#include "readers/nsys_ranges.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "core/format.h"
#include "readers/kineto_names.h"

namespace vitrine {

namespace {

bool is_operator(std::string_view name) {
  for (const std::string_view space : {"aten::", "c10d::", "torch::", "prims::", "autograd::"}) {
    if (name.starts_with(space)) return true;
  }
  return name.find("Backward") != std::string_view::npos;
}

}  // namespace

NvtxName nvtx_name(std::string_view text) {
  NvtxName out;
  size_t end = text.size();
  for (const std::string_view mark : {", op_id = ", ", seq = ", ", sizes = "}) {
    end = std::min(end, text.find(mark));
  }
  end = std::min(end, text.size());
  out.name = text.substr(0, end);
  constexpr std::string_view kSizes = ", sizes = ";
  if (const size_t sizes = text.find(kSizes); sizes != std::string_view::npos) {
    const std::string_view rest = text.substr(sizes + kSizes.size());
    size_t depth = 0, stop = 0;
    for (; stop < rest.size(); ++stop) {
      depth += rest[stop] == '[';
      if (rest[stop] == ']' && --depth == 0) break;
      if (depth == 0) break;
    }
    out.shapes = rest.substr(0, std::min(stop + 1, rest.size()));
  }
  if (is_data_loading(out.name))
    out.kind = SpanKind::kData;
  else if (is_operator(out.name))
    out.kind = SpanKind::kOperation;
  return out;
}

StepName step_name(std::string_view name) {
  size_t end = name.size();
  while (end > 0 && std::isdigit(static_cast<unsigned char>(name[end - 1]))) --end;
  StepName out;
  if (end < name.size()) {
    const auto [stop, error] =
        std::from_chars(name.data() + end, name.data() + name.size(), out.number);
    if (error != std::errc() || out.number > INT32_MAX) return {};
  }
  std::string family = lower(name.substr(0, end));
  while (!family.empty() && std::string_view(" #:=_-").find(family.back()) != std::string::npos) {
    family.pop_back();
  }
  for (const std::string_view known : {"step",
                                       "profilerstep",
                                       "iteration",
                                       "iter",
                                       "train_step",
                                       "training_step",
                                       "train step",
                                       "training step",
                                       "global_step",
                                       "global step"}) {
    if (family == known) {
      out.family = family;
      return out;
    }
  }
  return {};
}

std::string collective_of_range(std::string_view name) {
  if (name.starts_with("nccl:")) {
    // "nccl:_all_gather_base", "nccl:send 0->1"
    std::string_view word = name.substr(5, name.find(' ') - 5);
    if (word.starts_with("_")) word.remove_prefix(1);
    if (word.ends_with("_base")) word.remove_suffix(5);
    return word == "recv" ? "receive" : collective_from_c10d(word);
  }
  if (!name.starts_with("nccl") || name.size() < 6) return "";
  static constexpr std::pair<std::string_view, const char*> kNames[] = {
      {"ncclAllReduce", "all_reduce"},
      {"ncclAllGather", "all_gather"},
      {"ncclReduceScatter", "reduce_scatter"},
      {"ncclBroadcast", "broadcast"},
      {"ncclReduce", "reduce"},
      {"ncclAlltoAll", "all_to_all"},
      {"ncclSend", "send"},
      {"ncclRecv", "receive"}};
  for (const auto& [range, collective] : kNames) {
    if (name == range) return collective;
  }
  return "";
}

int64_t message_bytes(std::string_view json) {
  constexpr std::string_view kKey = "\"Message size [bytes]\"";
  const size_t at = json.find(kKey);
  if (at == std::string_view::npos) return 0;
  size_t digits = at + kKey.size();
  while (digits < json.size() && !std::isdigit(static_cast<unsigned char>(json[digits])) &&
         std::string_view(" :\"").find(json[digits]) != std::string_view::npos) {
    ++digits;
  }
  int64_t bytes = 0;
  std::from_chars(json.data() + digits, json.data() + json.size(), bytes);
  return bytes;
}

}  // namespace vitrine

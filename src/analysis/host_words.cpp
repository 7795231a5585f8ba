// Words of the CUDA, HIP and MUSA runtimes, of PyTorch's operators and of its annotations.
#include "analysis/host_words.h"

#include <algorithm>
#include <cctype>
#include <initializer_list>
#include <string_view>

#include "core/contains.h"

namespace vitrine {
namespace {

using Words = std::initializer_list<std::string_view>;

bool one_of(std::string_view text, const Words& words) {
  return std::find(words.begin(), words.end(), text) != words.end();
}
bool begins_with_one(std::string_view text, const Words& words) {
  return std::any_of(
      words.begin(), words.end(), [&](std::string_view word) { return text.starts_with(word); });
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

// "cudaLaunchKernel_v7000", "cuMemcpyHtoDAsync_v2", "hipMemcpyWithStream".
CallRole call_role(std::string_view name) {
  if (name == "INVALID") return CallRole::kOther;
  if (!begins_with_one(name, {"cuda", "cu", "hip", "musa", "mu"})) return CallRole::kForeign;
  if (contains(name, "Graph")) {
    return contains(name, "GraphLaunch") ? CallRole::kGraphLaunch : CallRole::kOther;
  }
  if (contains(name, "Synchronize")) return CallRole::kSync;
  if (contains(name, "StreamWaitEvent")) return CallRole::kStreamWait;
  if (contains(name, "Launch")) return CallRole::kLaunch;
  if (contains(name, "Memcpy") || contains(name, "Memset")) {
    const bool waits =
        contains(name, "Memcpy") && !contains(name, "Async") && !contains(name, "Peer");
    return waits ? CallRole::kBlockingCopy : CallRole::kLaunch;
  }
  for (const char* word : {"Malloc",
                           "Free",
                           "HostAlloc",
                           "HostRegister",
                           "HostUnregister",
                           "MemAlloc",
                           "MemCreate",
                           "MemMap",
                           "MemUnmap",
                           "MemRelease",
                           "MemSetAccess",
                           "MemAddressReserve"}) {
    if (contains(name, word)) return CallRole::kAllocator;
  }
  return CallRole::kOther;
}

Phase region_phase(std::string_view name) {
  const std::string text = lower(name);
  if (contains(text, "optimizer")) return Phase::kOptimizer;
  if (contains(text, "backward")) return Phase::kBackward;
  if (contains(text, "forward")) return Phase::kForward;
  return Phase::kOther;
}

bool forward_only(std::string_view name) {
  constexpr std::string_view kScaledDot = "aten::_scaled_dot_product_";
  if (name.starts_with(kScaledDot)) return !contains(name, "backward");
  return one_of(name,
                {"aten::linear",
                 "aten::layer_norm",
                 "aten::native_layer_norm",
                 "aten::rms_norm",
                 "aten::_fused_rms_norm",
                 "aten::group_norm",
                 "aten::scaled_dot_product_attention",
                 "aten::gelu",
                 "aten::silu",
                 "aten::relu",
                 "aten::relu_",
                 "aten::conv1d",
                 "aten::conv2d",
                 "aten::conv3d",
                 "aten::batch_norm",
                 "aten::native_batch_norm",
                 "aten::cudnn_batch_norm",
                 "aten::miopen_batch_norm",
                 "aten::embedding",
                 "aten::softmax",
                 "aten::dropout",
                 "aten::max_pool2d",
                 "aten::leaky_relu"});
}

}  // namespace

HostWord host_word(const std::string& name) {
  HostWord out;
  out.call = call_role(name);
  out.region_phase = region_phase(name);
  out.backward_node = name.starts_with("autograd::engine::evaluate_function");
  if (contains(name, "ackward") || contains(name, "torch::autograd::") || out.backward_node) {
    out.operator_phase = Phase::kBackward;
  } else if (contains(name, "_foreach_") || contains(name, "aten::_fused_adam") ||
             contains(name, "aten::_fused_sgd") || name.starts_with("Optimizer.")) {
    out.operator_phase = Phase::kOptimizer;
  }
  out.sync_operator = one_of(name,
                             {"aten::item",
                              "aten::_local_scalar_dense",
                              "aten::nonzero",
                              "aten::is_nonzero",
                              "aten::equal",
                              "aten::masked_select",
                              "aten::unique",
                              "aten::_unique2",
                              "aten::unique_consecutive",
                              "aten::tolist",
                              "aten::allclose"});
  out.forward_only = forward_only(name);
  out.framework_region =
      out.region_phase != Phase::kOther || begins_with_one(name,
                                                           {"nccl:",
                                                            "gloo:",
                                                            "ucc:",
                                                            "mpi:",
                                                            "c10d::",
                                                            "FSDP::",
                                                            "ProfilerStep",
                                                            "Torch-Compiled Region",
                                                            "TorchDynamo",
                                                            "## Call",
                                                            "CompiledFx",
                                                            "DistributedDataParallel",
                                                            "enumerate(DataLoader)",
                                                            "PyTorch Profiler",
                                                            "Iteration Start",
                                                            "record_param_comms",
                                                            "step"});
  out.profiler = one_of(name,
                        {"Activity Buffer Request",
                         "Buffer Flush",
                         "Instrumentation",
                         "Resource",
                         "PROFILER_OVERHEAD",
                         "Profiler Overhead",
                         "CUPTI Overhead"});
  return out;
}

}  // namespace vitrine

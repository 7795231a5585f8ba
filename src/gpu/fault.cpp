// Faults noted by kernels.
#include "gpu/fault.h"

#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/format.h"
#include "gpu/runtime.h"

namespace vitrine::gpu {
namespace {

std::mutex mutex;
std::map<int, Fault*>& slots() {
  static auto* all = new std::map<int, Fault*>;
  return *all;
}
std::vector<std::string>& operations() {
  static auto* all = new std::vector<std::string>;
  return *all;
}

}  // namespace

Fault* fault_slot() {
  int device = 0;
  VITRINE_GPU_CHECK(cudaGetDevice(&device));
  const std::lock_guard lock(mutex);
  Fault*& slot = slots()[device];
  if (!slot) {
    VITRINE_GPU_CHECK(cudaMalloc(reinterpret_cast<void**>(&slot), sizeof(Fault)));
    VITRINE_GPU_CHECK(cudaMemsetAsync(slot, 0, sizeof(Fault), stream()));
    VITRINE_GPU_CHECK(cudaStreamSynchronize(stream()));
  }
  return slot;
}

int32_t fault_operation(const char* name) {
  const std::lock_guard lock(mutex);
  auto& all = operations();
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i] == name) return static_cast<int32_t>(i);
  }
  all.emplace_back(name);
  return static_cast<int32_t>(all.size()) - 1;
}

void check_faults() {
  int device = 0;
  VITRINE_GPU_CHECK(cudaGetDevice(&device));
  Fault* slot = nullptr;
  {
    const std::lock_guard lock(mutex);
    const auto it = slots().find(device);
    if (it == slots().end()) return;
    slot = it->second;
  }
  Fault fault;
  VITRINE_GPU_CHECK(cudaMemcpyAsync(&fault, slot, sizeof(fault), cudaMemcpyDeviceToHost, stream()));
  VITRINE_GPU_CHECK(cudaStreamSynchronize(stream()));
  if (fault.limit == 0) return;
  VITRINE_GPU_CHECK(cudaMemsetAsync(slot, 0, sizeof(fault), stream()));
  std::string operation;
  {
    const std::lock_guard lock(mutex);
    operation = operations().at(static_cast<size_t>(fault.operation));
  }
  throw ShapeError(format("%s: id %lld at place %lld is outside the vocabulary [0, %lld)",
                          operation.c_str(),
                          static_cast<long long>(fault.value),
                          static_cast<long long>(fault.place),
                          static_cast<long long>(fault.limit)));
}

}  // namespace vitrine::gpu

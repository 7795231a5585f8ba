// Looks for CUPTI where the loader does, then in the toolkit that this was built with.
#include "gpu/cupti_library.h"

#include <dlfcn.h>

#include <mutex>

namespace vitrine::gpu {
namespace {

template <typename Function>
bool get(void* library, Function& function, const char* symbol) {
  function = reinterpret_cast<Function>(dlsym(library, symbol));
  return function != nullptr;
}

bool fill(void* library, Cupti& c) {
  return get(library, c.get_version, "cuptiGetVersion") &&
         get(library, c.result_string, "cuptiGetResultString") &&
         get(library, c.callback_name, "cuptiGetCallbackName") &&
         get(library, c.register_timestamp, "cuptiActivityRegisterTimestampCallback") &&
         get(library, c.register_buffers, "cuptiActivityRegisterCallbacks") &&
         get(library, c.enable, "cuptiActivityEnable") &&
         get(library, c.disable, "cuptiActivityDisable") &&
         get(library, c.flush_all, "cuptiActivityFlushAll") &&
         get(library, c.next_record, "cuptiActivityGetNextRecord") &&
         get(library, c.dropped_records, "cuptiActivityGetNumDroppedRecords") &&
         get(library, c.push_external, "cuptiActivityPushExternalCorrelationId") &&
         get(library, c.pop_external, "cuptiActivityPopExternalCorrelationId");
}

}  // namespace

const Cupti* load_cupti(std::string& why) {
  static std::mutex mutex;
  static Cupti cupti;
  static bool loaded = false;
  const std::lock_guard lock(mutex);
  if (loaded) return &cupti;
  constexpr uint32_t kMajor = CUPTI_API_VERSION / 10000;
  const std::string name = "libcupti.so." + std::to_string(kMajor);
  void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) library = dlopen((VITRINE_CUPTI_FOLDER "/" + name).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    why = "no trace of the GPU: " + name + " was not found (it comes with the CUDA toolkit)";
    return nullptr;
  }
  uint32_t version = 0;
  if (!fill(library, cupti) || cupti.get_version(&version) != CUPTI_SUCCESS ||
      version / 10000 != kMajor) {
    why = "no trace of the GPU: " + name + " has version " + std::to_string(version) +
          ", this build reads the records of " + std::to_string(CUPTI_API_VERSION);
    return nullptr;
  }
  loaded = true;
  return &cupti;
}

}  // namespace vitrine::gpu

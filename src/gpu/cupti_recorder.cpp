// Buffers of activity records, taken from CUPTI whole and read when the trace is over.
#include "gpu/cupti_recorder.h"

#include <cxxabi.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/error.h"
#include "gpu/cupti_library.h"
#include "gpu/gpu.h"
#include "gpu/runtime.h"

namespace vitrine {
namespace {

using gpu::Cupti;

constexpr size_t kBufferBytes = size_t{8} << 20;
constexpr auto kOurs = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0;
constexpr CUpti_ActivityKind kKinds[] = {
    // The external correlations first: a record is only made for calls that come after.
    CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
    CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
    CUPTI_ACTIVITY_KIND_MEMCPY,
    CUPTI_ACTIVITY_KIND_MEMCPY2,
    CUPTI_ACTIVITY_KIND_MEMSET,
    CUPTI_ACTIVITY_KIND_RUNTIME,
    CUPTI_ACTIVITY_KIND_DRIVER,
    CUPTI_ACTIVITY_KIND_SYNCHRONIZATION,
};

const char* memory_name(uint8_t kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE:
      return "Pageable";
    case CUPTI_ACTIVITY_MEMORY_KIND_PINNED:
      return "Pinned";
    case CUPTI_ACTIVITY_MEMORY_KIND_DEVICE:
    case CUPTI_ACTIVITY_MEMORY_KIND_DEVICE_STATIC:
      return "Device";
    case CUPTI_ACTIVITY_MEMORY_KIND_ARRAY:
      return "Array";
    case CUPTI_ACTIVITY_MEMORY_KIND_MANAGED:
    case CUPTI_ACTIVITY_MEMORY_KIND_MANAGED_STATIC:
      return "Managed";
    default:
      return "Unknown";
  }
}

std::string copy_name(uint8_t kind, uint8_t from, uint8_t to) {
  const char* direction = kind == CUPTI_ACTIVITY_MEMCPY_KIND_HTOD   ? "HtoD"
                          : kind == CUPTI_ACTIVITY_MEMCPY_KIND_DTOH ? "DtoH"
                          : kind == CUPTI_ACTIVITY_MEMCPY_KIND_DTOD ? "DtoD"
                          : kind == CUPTI_ACTIVITY_MEMCPY_KIND_HTOH ? "HtoH"
                          : kind == CUPTI_ACTIVITY_MEMCPY_KIND_PTOP ? "PtoP"
                                                                    : "other";
  return std::string("Memcpy ") + direction + " (" + memory_name(from) + " -> " + memory_name(to) +
         ")";
}

// Buffers between CUPTI, which asks from its own threads and knows no user pointer, and the trace.
// They outlive traces: CUPTI may hold one after the last flush.
class Buffers {
 public:
  struct Full {
    uint8_t* data;
    size_t bytes;
  };
  static Buffers& get() {
    static auto* all = new Buffers;
    return *all;
  }

  void reset(size_t max_bytes) {
    const std::lock_guard lock(mutex_);
    left_ = max_bytes / kBufferBytes;
  }
  static void CUPTIAPI request(uint8_t** data, size_t* bytes, size_t* max_records) {
    *max_records = 0;
    *data = get().take();
    *bytes = *data ? kBufferBytes : 0;
  }
  static void CUPTIAPI complete(CUcontext, uint32_t, uint8_t* data, size_t, size_t valid) {
    const std::lock_guard lock(get().mutex_);
    get().full_.push_back({data, valid});
  }
  std::vector<Full> drain() {
    const std::lock_guard lock(mutex_);
    return std::exchange(full_, {});
  }
  void give_back(uint8_t* data) {
    const std::lock_guard lock(mutex_);
    free_.push_back(data);
  }

 private:
  uint8_t* take() {
    const std::lock_guard lock(mutex_);
    if (left_ == 0) return nullptr;  // CUPTI drops, and counts
    --left_;
    if (!free_.empty()) {
      uint8_t* data = free_.back();
      free_.pop_back();
      return data;
    }
    return static_cast<uint8_t*>(std::aligned_alloc(64, kBufferBytes));
  }

  std::mutex mutex_;
  size_t left_ = 0;
  std::vector<Full> full_;
  std::vector<uint8_t*> free_;
};

uint64_t CUPTIAPI timestamp() { return static_cast<uint64_t>(now_ns()); }

std::atomic<bool> running{false};

class CuptiTrace : public GpuTrace {
 public:
  explicit CuptiTrace(const Cupti& cupti) : cupti_(cupti) {}
  ~CuptiTrace() override {
    if (running_) stop_quietly();
    for (const Buffers::Full& full : Buffers::get().drain()) Buffers::get().give_back(full.data);
  }

  // "" or what CUPTI said.
  std::string open(size_t max_bytes) {
    Buffers::get().reset(max_bytes_ = max_bytes);
    std::string failed = said(cupti_.register_timestamp(timestamp), "its clock");
    if (failed.empty())
      failed = said(cupti_.register_buffers(Buffers::request, Buffers::complete), "its buffers");
    for (const CUpti_ActivityKind kind : kKinds) {
      if (failed.empty()) failed = said(cupti_.enable(kind), "a kind of record");
    }
    running_ = true;
    if (!failed.empty()) stop_quietly();
    return failed;
  }

  void begin(const GpuWork& work) override {
    uint64_t id = 0;
    {
      const std::lock_guard lock(mutex_);
      works_.push_back(work);
      id = works_.size();
    }
    cupti_.push_external(kOurs, id);
  }
  void end() override {
    uint64_t id = 0;
    cupti_.pop_external(kOurs, &id);
  }

  void forget() override {
    cupti_.flush_all(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    for (const Buffers::Full& full : Buffers::get().drain()) Buffers::get().give_back(full.data);
    Buffers::get().reset(max_bytes_);
    size_t dropped = 0;
    cupti_.dropped_records(nullptr, 0, &dropped);
    const std::lock_guard lock(mutex_);
    works_.clear();
  }

  void stop() override {
    if (!running_) return;
    const std::string failed = stop_quietly();
    if (!failed.empty()) throw DeviceError("the GPU's trace: " + failed);
  }

  void add_to(RankTimeline& timeline) override {
    GpuRecords records;
    size_t dropped = 0;
    cupti_.dropped_records(nullptr, 0, &dropped);
    records.dropped = static_cast<int64_t>(dropped);
    for (const Buffers::Full& full : Buffers::get().drain()) {
      CUpti_Activity* record = nullptr;
      while (cupti_.next_record(full.data, full.bytes, &record) == CUPTI_SUCCESS) {
        read(*record, records);
      }
      Buffers::get().give_back(full.data);
    }
    const std::lock_guard lock(mutex_);
    add_gpu_records(records, works_, timeline);
    works_.clear();
    timeline.info["device"] = gpu::limits().name;
    timeline.info["device.memory_bytes"] = std::to_string(gpu::limits().memory_bytes);
    timeline.info["device.sms"] = std::to_string(gpu::limits().multiprocessors);
    timeline.info["backend"] = "nccl";
  }

 private:
  std::string said(CUptiResult result, const std::string& about) const {
    if (result == CUPTI_SUCCESS) return "";
    const char* text = nullptr;
    cupti_.result_string(result, &text);
    return "CUPTI refuses " + about + " (" + (text ? text : "code " + std::to_string(result)) +
           "); another profiler may be attached";
  }

  std::string stop_quietly() {
    for (const CUpti_ActivityKind kind : kKinds) cupti_.disable(kind);
    // Forced: a call that is under way on another thread would hold its whole buffer back.
    const std::string failed =
        said(cupti_.flush_all(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "to deliver its records");
    running_ = false;
    running = false;
    return failed;
  }

  const std::string& demangled(const char* name) {
    const std::string key = name ? name : "unknown kernel";
    const auto it = names_.find(key);
    if (it != names_.end()) return it->second;
    int status = 0;
    char* readable = abi::__cxa_demangle(key.c_str(), nullptr, nullptr, &status);
    const std::string& kept = names_[key] = status == 0 && readable ? readable : key;
    std::free(readable);
    return kept;
  }

  // "cudaLaunchKernel_v7000" without its version.
  std::string call_name(CUpti_CallbackDomain domain, CUpti_CallbackId id) const {
    const char* name = nullptr;
    if (cupti_.callback_name(domain, id, &name) != CUPTI_SUCCESS || !name) return "unknown call";
    std::string text = name;
    const size_t version = text.rfind("_v");
    const bool digits = version != std::string::npos && version + 2 < text.size() &&
                        text.find_first_not_of("0123456789", version + 2) == std::string::npos;
    return digits ? text.substr(0, version) : text;
  }

  template <typename Activity>
  static GpuRecord device_record(GpuRecord::Kind kind, const Activity& a, int64_t bytes) {
    GpuRecord out;
    out.kind = kind;
    out.start_ns = static_cast<int64_t>(a.start);
    out.end_ns = static_cast<int64_t>(a.end);
    out.device = a.deviceId;
    out.stream = a.streamId;
    out.correlation = a.correlationId;
    out.bytes = bytes;
    return out;
  }

  void read(const CUpti_Activity& record, GpuRecords& out) {
    using Kind = GpuRecord::Kind;
    switch (record.kind) {
      case CUPTI_ACTIVITY_KIND_KERNEL:
      case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
        const auto& a = reinterpret_cast<const CUpti_ActivityKernel10&>(record);
        if (a.start == 0 || a.end == 0) return void(++out.dropped);  // cut by the forced flush
        out.records.push_back(device_record(Kind::kKernel, a, 0));
        out.records.back().name = demangled(a.name);
        return;
      }
      case CUPTI_ACTIVITY_KIND_MEMCPY: {
        const auto& a = reinterpret_cast<const CUpti_ActivityMemcpy6&>(record);
        if (a.start == 0 || a.end == 0) return void(++out.dropped);
        out.records.push_back(device_record(Kind::kCopy, a, static_cast<int64_t>(a.bytes)));
        out.records.back().name = copy_name(a.copyKind, a.srcKind, a.dstKind);
        return;
      }
      case CUPTI_ACTIVITY_KIND_MEMCPY2: {
        const auto& a = reinterpret_cast<const CUpti_ActivityMemcpyPtoP4&>(record);
        if (a.start == 0 || a.end == 0) return void(++out.dropped);
        out.records.push_back(device_record(Kind::kCopy, a, static_cast<int64_t>(a.bytes)));
        out.records.back().name = copy_name(a.copyKind, a.srcKind, a.dstKind);
        return;
      }
      case CUPTI_ACTIVITY_KIND_MEMSET: {
        const auto& a = reinterpret_cast<const CUpti_ActivityMemset4&>(record);
        if (a.start == 0 || a.end == 0) return void(++out.dropped);
        out.records.push_back(device_record(Kind::kSet, a, static_cast<int64_t>(a.bytes)));
        out.records.back().name =
            std::string("Memset (") + memory_name(static_cast<uint8_t>(a.memoryKind)) + ")";
        return;
      }
      case CUPTI_ACTIVITY_KIND_RUNTIME:
      case CUPTI_ACTIVITY_KIND_DRIVER: {
        const auto& a = reinterpret_cast<const CUpti_ActivityAPI&>(record);
        GpuRecord call;
        call.kind = Kind::kCall;
        call.driver = a.kind == CUPTI_ACTIVITY_KIND_DRIVER;
        call.name = call_name(
            call.driver ? CUPTI_CB_DOMAIN_DRIVER_API : CUPTI_CB_DOMAIN_RUNTIME_API, a.cbid);
        call.start_ns = static_cast<int64_t>(a.start);
        call.end_ns = static_cast<int64_t>(a.end);
        call.thread = a.threadId;
        call.correlation = a.correlationId;
        out.records.push_back(std::move(call));
        return;
      }
      case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION:
        return read_sync(reinterpret_cast<const CUpti_ActivitySynchronization2&>(record), out);
      case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: {
        const auto& a = reinterpret_cast<const CUpti_ActivityExternalCorrelation&>(record);
        if (a.externalKind == kOurs) out.work_of[a.correlationId] = a.externalId;
        return;
      }
      default:
        return;
    }
  }

  // Waits of the host; a stream's wait for an event takes no time of anyone's here.
  static void read_sync(const CUpti_ActivitySynchronization2& a, GpuRecords& out) {
    GpuRecord sync;
    sync.kind = GpuRecord::Kind::kSync;
    switch (a.type) {
      case CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE:
        sync.name = "wait for an event";
        break;
      case CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE:
        sync.name = "wait for stream " + std::to_string(a.streamId);
        break;
      case CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE:
        sync.name = "wait for the device";
        break;
      default:
        return;
    }
    sync.start_ns = static_cast<int64_t>(a.start);
    sync.end_ns = static_cast<int64_t>(a.end);
    sync.stream = a.streamId;
    sync.correlation = a.correlationId;
    out.records.push_back(std::move(sync));
  }

  const Cupti& cupti_;
  bool running_ = false;
  size_t max_bytes_ = 0;
  std::mutex mutex_;
  std::vector<GpuWork> works_;
  std::map<std::string, std::string> names_;  // as they are, as people read them
};

}  // namespace

std::unique_ptr<GpuTrace> GpuTrace::start(std::string& why, size_t max_bytes) {
  why = why_no_gpu();
  if (!why.empty()) return nullptr;
  const Cupti* cupti = gpu::load_cupti(why);
  if (!cupti) return nullptr;
  if (running.exchange(true)) {
    why = "no trace of the GPU: this process records one already";
    return nullptr;
  }
  auto trace = std::make_unique<CuptiTrace>(*cupti);
  why = trace->open(max_bytes);
  if (!why.empty()) return nullptr;
  return trace;
}

}  // namespace vitrine

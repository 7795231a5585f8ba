// The few calls of libnvidia-ml.so.1 that are used, declared here: its header comes with the
// toolkit only, the library with every driver. The binary interface is stable by NVIDIA's promise.
#include "gpu/nvml.h"

#include <dlfcn.h>

#include <array>
#include <map>

#include "core/clock.h"

namespace vitrine {
namespace {

using Code = int;  // nvmlReturn_t, 0 = success
using GpuHandle = struct nvmlDevice_st*;

struct Utilization {
  unsigned gpu, memory;  // percent
};
struct Memory {
  unsigned long long total, free, used;
};
// nvmlFieldValue_t
struct FieldValue {
  unsigned field, scope;
  long long timestamp, latency_us;
  int type;
  Code code;
  union {
    double d;
    int si;
    unsigned ui;
    unsigned long ul;
    unsigned long long ull;
    long long sll;
    unsigned short us;
  } value;
};
static_assert(sizeof(FieldValue) == 40);

constexpr int kClockSm = 1;         // NVML_CLOCK_SM
constexpr int kTemperatureGpu = 0;  // NVML_TEMPERATURE_GPU
constexpr int kPcieSent = 0, kPcieReceived = 1;
constexpr unsigned kLinkSent = 138, kLinkReceived = 139;  // ..._NVLINK_THROUGHPUT_DATA_TX, _RX: KiB
constexpr unsigned kAllLinks = ~0u;

double number(const FieldValue& field) {
  if (field.code != 0) return GpuSample::kUnknown;
  switch (field.type) {
    case 0:
      return field.value.d;
    case 1:
      return field.value.ui;
    case 2:
      return static_cast<double>(field.value.ul);
    case 3:
      return static_cast<double>(field.value.ull);
    case 4:
      return static_cast<double>(field.value.sll);
    case 5:
      return field.value.si;
    case 6:
      return field.value.us;
    default:
      return GpuSample::kUnknown;
  }
}

class LoadedNvml : public Nvml {
 public:
  explicit LoadedNvml(void* library) : library_(library) {
    get(init, "nvmlInit_v2");
    get(shutdown, "nvmlShutdown");
    get(error_string, "nvmlErrorString");
    get(count, "nvmlDeviceGetCount_v2");
    get(handle, "nvmlDeviceGetHandleByIndex_v2");
    get(name, "nvmlDeviceGetName");
    get(utilization, "nvmlDeviceGetUtilizationRates");
    get(memory, "nvmlDeviceGetMemoryInfo");
    get(power, "nvmlDeviceGetPowerUsage");
    get(power_limit, "nvmlDeviceGetEnforcedPowerLimit");
    get(clock, "nvmlDeviceGetClockInfo");
    get(temperature, "nvmlDeviceGetTemperature");
    get(pcie, "nvmlDeviceGetPcieThroughput");
    get(fields, "nvmlDeviceGetFieldValues");
  }
  ~LoadedNvml() override {
    if (started_ && shutdown) shutdown();
    dlclose(library_);
  }

  // "" or what went wrong.
  std::string start() {
    if (!init || !count || !handle || !memory) return "the driver's NVML is too old";
    const Code code = init();
    started_ = code == 0;
    if (started_) return "";
    return std::string("NVML does not start: ") +
           (error_string ? error_string(code) : "code " + std::to_string(code));
  }

  std::vector<GpuSample> sample() override {
    std::vector<GpuSample> all;
    unsigned gpus = 0;
    if (count(&gpus) != 0) return all;
    for (unsigned i = 0; i < gpus; ++i) {
      GpuHandle gpu = nullptr;
      GpuSample sample;
      sample.index = static_cast<int>(i);
      if (handle(i, &gpu) == 0) fill(gpu, sample);
      all.push_back(sample);
    }
    return all;
  }

 private:
  template <typename Function>
  void get(Function& function, const char* symbol) {
    function = reinterpret_cast<Function>(dlsym(library_, symbol));
  }

  // Value times `scale`, or unknown.
  template <typename Function, typename... Arguments>
  static double ask(double scale, Function function, Arguments... arguments) {
    unsigned value = 0;
    if (!function || function(arguments..., &value) != 0) return GpuSample::kUnknown;
    return scale * value;
  }

  void fill(GpuHandle gpu, GpuSample& s) {
    std::array<char, 96> text{};
    if (name && name(gpu, text.data(), static_cast<unsigned>(text.size()) - 1) == 0)
      s.name = text.data();
    Utilization busy{};
    if (utilization && utilization(gpu, &busy) == 0) {
      s.busy = busy.gpu / 100.0;
      s.memory_busy = busy.memory / 100.0;
    }
    Memory bytes{};
    if (memory(gpu, &bytes) == 0) {
      s.used_bytes = static_cast<double>(bytes.used);
      s.total_bytes = static_cast<double>(bytes.total);
    }
    s.power_w = ask(1e-3, power, gpu);
    s.power_limit_w = ask(1e-3, power_limit, gpu);
    s.sm_clock_hz = ask(1e6, clock, gpu, kClockSm);
    s.temperature_c = ask(1, temperature, gpu, kTemperatureGpu);
    s.pcie_sent_bytes_per_s = ask(1024, pcie, gpu, kPcieSent);
    s.pcie_received_bytes_per_s = ask(1024, pcie, gpu, kPcieReceived);
    fill_links(gpu, s);
  }

  void fill_links(GpuHandle gpu, GpuSample& s) {
    std::array<FieldValue, 2> asked{};
    asked[0].field = kLinkSent, asked[1].field = kLinkReceived;
    for (FieldValue& field : asked) field.scope = kAllLinks, field.code = -1;
    if (!fields || fields(gpu, static_cast<int>(asked.size()), asked.data()) != 0) return;
    s.nvlink_sent_bytes = 1024 * number(asked[0]);
    s.nvlink_received_bytes = 1024 * number(asked[1]);
    const int64_t now = now_ns();
    const auto before = links_.find(s.index);
    if (before != links_.end() && now > before->second.time_ns) {
      const double seconds = static_cast<double>(now - before->second.time_ns) * 1e-9;
      s.nvlink_sent_bytes_per_s = (s.nvlink_sent_bytes - before->second.sent) / seconds;
      s.nvlink_received_bytes_per_s = (s.nvlink_received_bytes - before->second.received) / seconds;
    }
    links_[s.index] = {now, s.nvlink_sent_bytes, s.nvlink_received_bytes};
  }

  struct Links {
    int64_t time_ns = 0;
    double sent = 0, received = 0;
  };

  void* library_;
  bool started_ = false;
  std::map<int, Links> links_;  // of the sample before
  Code (*init)() = nullptr;
  Code (*shutdown)() = nullptr;
  const char* (*error_string)(Code) = nullptr;
  Code (*count)(unsigned*) = nullptr;
  Code (*handle)(unsigned, GpuHandle*) = nullptr;
  Code (*name)(GpuHandle, char*, unsigned) = nullptr;
  Code (*utilization)(GpuHandle, Utilization*) = nullptr;
  Code (*memory)(GpuHandle, Memory*) = nullptr;
  Code (*power)(GpuHandle, unsigned*) = nullptr;
  Code (*power_limit)(GpuHandle, unsigned*) = nullptr;
  Code (*clock)(GpuHandle, int, unsigned*) = nullptr;
  Code (*temperature)(GpuHandle, int, unsigned*) = nullptr;
  Code (*pcie)(GpuHandle, int, unsigned*) = nullptr;
  Code (*fields)(GpuHandle, int, FieldValue*) = nullptr;
};

}  // namespace

std::unique_ptr<Nvml> Nvml::open(std::string& why) {
  void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    why = "no NVIDIA driver is installed here: libnvidia-ml.so.1 was not found";
    return nullptr;
  }
  auto nvml = std::make_unique<LoadedNvml>(library);
  why = nvml->start();
  if (!why.empty()) return nullptr;
  return nvml;
}

}  // namespace vitrine

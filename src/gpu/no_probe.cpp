// A build without GPU code: nothing to probe.
#include "core/error.h"
#include "gpu/probe.h"

namespace vitrine {

GpuProbe probe_gpu(int) { throw DeviceError(why_no_gpu()); }
HostLink probe_host_link(int, const std::function<void()>&) { throw DeviceError(why_no_gpu()); }
ProbeReport probe_gpus() { throw DeviceError(why_no_gpu()); }

}  // namespace vitrine

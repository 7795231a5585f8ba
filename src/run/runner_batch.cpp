// Brings micro-batches to the device: when they are due, or while the device still works on the one
// before.
#include <algorithm>

#include "core/error.h"
#include "run/runner.h"
#include "run/runner_names.h"

namespace vitrine {
namespace {

// A stream of its own, so that copies run beside the kernels.
constexpr int kUploadLane = static_cast<int>(LaneId::kCount);

}  // namespace

Runner::BatchCopy Runner::copy_batch(int micro, bool ahead, int32_t lane) {
  Device& device = *execution_.device;
  const std::shared_ptr<void> issued = ahead ? device.point() : nullptr;
  const int64_t start = now_ns();
  const BatchViews views = input_.batch(micro);
  // A wait that the device worked through cost nothing.
  if (device.passed(issued)) output_.data_wait_ns += now_ns() - start;
  Action action;
  action.micro_batch = micro % static_cast<int>(strategy_.accumulation);
  record(action, SpanKind::kData, names_->data, lane, start);
  GpuWork work;
  if (gpu_trace_) {
    work = gpu_work(action, lane);
    work.name = names_->data;
  }
  const GpuWorkScope scope(gpu_trace_, work);
  BatchCopy copies;
  if (ahead) device.enter_lane(kUploadLane);
  for (size_t e = 0; e < graph_.edges.size(); ++e) {
    if (graph_.edges[e].producer >= 0) continue;
    const std::string name = graph_.edges[e].name.substr(6);
    const auto it =
        std::find_if(views.begin(), views.end(), [&](auto& view) { return view.first == name; });
    if (it == views.end())
      throw ConfigError("the data has no \"" + name + "\", which the model reads");
    Buffer copy = activations_.copy_batch(static_cast<int>(e), it->second);
    if (copy) copies.emplace_back(static_cast<int>(e), std::move(copy));
  }
  return copies;
}

void Runner::load_batch(int micro, int32_t lane) {
  const auto m = static_cast<size_t>(micro);
  if (batch_loaded_[m]) return;
  batch_loaded_[m] = true;
  BatchCopy copies;
  if (ahead_.step == input_.step && ahead_.micro == micro) {
    copies = std::move(ahead_.copies);
    execution_.device->after(ahead_.there);
    ahead_ = {};
  } else {
    ahead_ = {};
    copies = copy_batch(micro, false, lane);
  }
  for (auto& [edge, copy] : copies) activations_.set_batch(edge, micro, std::move(copy));
}

void Runner::load_ahead(int micro, int32_t lane) {
  Device& device = *execution_.device;
  const int count = static_cast<int>(strategy_.accumulation);
  if (device.is_host() || micro > count || ahead_.step >= 0) return;
  if (micro < count && batch_loaded_[static_cast<size_t>(micro)]) return;
  if (micro == count && !input_.may_ask_next) return;
  try {
    BatchCopy copies = copy_batch(micro, true, lane);
    ahead_ = {input_.step + micro / count, micro % count, std::move(copies), device.point()};
  } catch (const Error&) {
    // It comes again, and is told, when the batch is due.
  }
  device.enter_lane(static_cast<int>(LaneId::kCompute));
}

}  // namespace vitrine

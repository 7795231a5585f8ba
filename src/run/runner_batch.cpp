// Brings micro-batches to the device: beside the kernels of what was issued before, the first of a
// step at the end of the step before.
#include <algorithm>

#include "core/error.h"
#include "run/runner.h"
#include "run/runner_names.h"

namespace vitrine {
namespace {

// A stream of its own, so that copies run beside the kernels.
constexpr int kUploadLane = static_cast<int>(LaneId::kCount);

// The calling thread issues copies while this lives, then compute again.
class UploadLane {
 public:
  explicit UploadLane(Device& device) : device_(device) { device_.enter_lane(kUploadLane); }
  ~UploadLane() {
    try {
      device_.enter_lane(static_cast<int>(LaneId::kCompute));
    } catch (const Error&) {  // the device is gone, which the next call tells
    }
  }
  UploadLane(const UploadLane&) = delete;
  UploadLane& operator=(const UploadLane&) = delete;

 private:
  Device& device_;
};

}  // namespace

Runner::BatchCopy Runner::copy_batch(int micro, int32_t lane) {
  Device& device = *execution_.device;
  const std::shared_ptr<void> issued = device.point();
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
  const UploadLane upload(device);  // before `copy`, whose memory goes back in this lane on errors
  BatchCopy copy;
  for (size_t e = 0; e < graph_.edges.size(); ++e) {
    if (graph_.edges[e].producer >= 0) continue;
    const std::string name = graph_.edges[e].name.substr(6);
    const auto it =
        std::find_if(views.begin(), views.end(), [&](auto& view) { return view.first == name; });
    if (it == views.end())
      throw ConfigError("the data has no \"" + name + "\", which the model reads");
    Buffer value = activations_.copy_batch(static_cast<int>(e), it->second);
    if (value) copy.values.emplace_back(static_cast<int>(e), std::move(value));
  }
  copy.there = device.point();
  return copy;
}

void Runner::forget_next() {
  execution_.device->after(next_.there);  // its memory goes back in this lane
  next_ = {};
  next_of_ = -1;
}

void Runner::load_batch(int micro, int32_t lane) {
  const auto m = static_cast<size_t>(micro);
  if (batch_loaded_[m]) return;
  batch_loaded_[m] = true;
  const bool here = micro == 0 && next_of_ == input_.step;
  BatchCopy copy = here ? std::move(next_) : copy_batch(micro, lane);
  forget_next();
  execution_.device->after(copy.there);
  for (auto& [edge, value] : copy.values) activations_.set_batch(edge, micro, std::move(value));
}

void Runner::load_next(int32_t lane) {
  if (execution_.device->is_host() || !input_.may_ask_next) return;
  try {
    next_ = copy_batch(static_cast<int>(strategy_.accumulation), lane);
    next_of_ = input_.step + 1;
  } catch (...) {
    // It comes again, and is told, when the batch is due; a lost device at the step's end.
  }
}

}  // namespace vitrine

// Timing by events.
#include "gpu/timing.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/error.h"
#include "gpu/device_kernels.h"
#include "gpu/runtime.h"

namespace vitrine::gpu {
namespace {

constexpr int kCallsAGraph = 20;

// A captured graph of calls in the calling thread's stream.
class CallGraph {
 public:
  CallGraph() = default;
  ~CallGraph() {
    if (executable_) cudaGraphExecDestroy(executable_);
  }
  CallGraph(const CallGraph&) = delete;
  CallGraph& operator=(const CallGraph&) = delete;

  // False when something in the calls can't be captured.
  bool capture(const std::function<void()>& calls) {
    VITRINE_GPU_CHECK(cudaStreamSynchronize(stream()));
    VITRINE_GPU_CHECK(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeRelaxed));
    bool refused = false;
    try {
      calls();
    } catch (const Error&) {
      refused = true;
    }
    cudaGraph_t graph = nullptr;
    refused = cudaStreamEndCapture(stream(), &graph) != cudaSuccess || refused;
    if (!refused) refused = cudaGraphInstantiate(&executable_, graph, 0) != cudaSuccess;
    if (graph) cudaGraphDestroy(graph);
    cudaGetLastError();  // a refusal leaves one behind
    return !refused;
  }
  void launch() const { VITRINE_GPU_CHECK(cudaGraphLaunch(executable_, stream())); }

 private:
  cudaGraphExec_t executable_ = nullptr;
};

}  // namespace

double median_ns(int sets,
                 int samples,
                 const std::function<void(int)>& prepare,
                 const std::function<void(int)>& issue) {
  constexpr int kWarmUp = 2;
  constexpr float kLongMs = 10;  // rounds that need no company
  const auto prepare_all = [&] {
    for (int set = 0; set < sets; ++set) prepare(set);
  };
  const Event start = Event::make(true), stop = Event::make(true);
  const auto time_ms = [&](const auto& calls) {
    prepare_all();
    VITRINE_GPU_CHECK(cudaEventRecord(start.get(), stream()));
    calls();
    VITRINE_GPU_CHECK(cudaEventRecord(stop.get(), stream()));
    VITRINE_GPU_CHECK(cudaEventSynchronize(stop.get()));
    float milliseconds = 0;
    VITRINE_GPU_CHECK(cudaEventElapsedTime(&milliseconds, start.get(), stop.get()));
    return milliseconds;
  };
  int rounds = 1;
  const auto issue_all = [&] {
    for (int i = 0; i < rounds * sets; ++i) issue(i % sets);
  };
  // The first calls allocate scratch and choose kernels, which graphs can't hold.
  time_ms(issue_all);
  if (time_ms(issue_all) < kLongMs) rounds = (kCallsAGraph + sets - 1) / sets;
  CallGraph graph;
  const bool captured = graph.capture(issue_all);
  std::vector<double> times;
  for (int sample = -kWarmUp; sample < samples; ++sample) {
    const float milliseconds = time_ms([&] { captured ? graph.launch() : issue_all(); });
    if (sample >= 0) times.push_back(1e6 * static_cast<double>(milliseconds) / (rounds * sets));
  }
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

int sets_beyond_cache(double bytes) {
  constexpr double kTimesCache = 4;
  const double wanted = kTimesCache * static_cast<double>(limits().l2_bytes);
  return static_cast<int>(std::clamp(std::ceil(wanted / std::max(bytes, 1.0)), 2.0, 64.0));
}

double copy_bandwidth(size_t bytes) {
  const size_t half = std::max<size_t>(bytes / 32 * 16, 16);
  const int sets = sets_beyond_cache(static_cast<double>(bytes));
  std::vector<void*> arrays(static_cast<size_t>(2 * sets));
  for (void*& array : arrays) {
    VITRINE_GPU_CHECK(cudaMalloc(&array, half));
    VITRINE_GPU_CHECK(cudaMemsetAsync(array, 0x5a, half, stream()));
  }
  const auto copy = [&](int set) {
    const auto at = static_cast<size_t>(2 * set);
    copy_array(arrays[at], arrays[at + 1], half);
  };
  const double ns = median_ns(
      sets, 11, [](int) {}, copy);
  for (void* array : arrays) VITRINE_GPU_CHECK(cudaFree(array));
  return 2e9 * static_cast<double>(half) / ns;
}

}  // namespace vitrine::gpu

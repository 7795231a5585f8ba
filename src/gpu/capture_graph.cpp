// Capturing, checking and launching of graphs.
#include "gpu/capture_graph.h"

#include <utility>
#include <vector>

#include "core/error.h"
#include "gpu/runtime.h"

namespace vitrine::gpu {
namespace {

thread_local bool is_capturing = false;
thread_local const char* spoiled_by = nullptr;

class Graph : public CapturedWork {
 public:
  explicit Graph(cudaGraphExec_t executable) : executable_(executable) {}
  ~Graph() override { cudaGraphExecDestroy(executable_); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void issue() override { VITRINE_GPU_CHECK(cudaGraphLaunch(executable_, stream())); }

 private:
  cudaGraphExec_t executable_;
};

// A graph that was captured, until it is executable or refused.
struct Captured {
  Captured() = default;
  ~Captured() {
    if (graph) cudaGraphDestroy(graph);
  }
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;
  cudaGraph_t graph = nullptr;
};

// HIP before 6.0 has the second name.
template <typename Attributes>
auto memory_type(const Attributes& attributes) {
  if constexpr (requires { attributes.type; }) {
    return attributes.type;
  } else {
    return attributes.memoryType;
  }
}

bool on_device(const void* memory) {
  cudaPointerAttributes attributes{};
  VITRINE_GPU_CHECK(cudaPointerGetAttributes(&attributes, memory));
  return memory_type(attributes) == cudaMemoryTypeDevice;
}

// "" where all is work on the device's memory.
std::string what_cannot_repeat(cudaGraph_t graph) {
  size_t count = 0;
  VITRINE_GPU_CHECK(cudaGraphGetNodes(graph, nullptr, &count));
  std::vector<cudaGraphNode_t> nodes(count);
  if (count > 0) VITRINE_GPU_CHECK(cudaGraphGetNodes(graph, nodes.data(), &count));
  for (const cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type{};
    VITRINE_GPU_CHECK(cudaGraphNodeGetType(node, &type));
    if (type == cudaGraphNodeTypeKernel || type == cudaGraphNodeTypeMemset ||
        type == cudaGraphNodeTypeEmpty) {
      continue;
    }
    if (type != cudaGraphNodeTypeMemcpy) {
      return "a graph node of type " + std::to_string(static_cast<int>(type));
    }
    cudaMemcpy3DParms copy{};
    VITRINE_GPU_CHECK(cudaGraphMemcpyNodeGetParams(node, &copy));
    const bool arrays = copy.srcArray != nullptr || copy.dstArray != nullptr;
    if (arrays || !on_device(copy.srcPtr.ptr) || !on_device(copy.dstPtr.ptr)) {
      return "a copy from or to the host";
    }
  }
  return "";
}

// Calls issue() while the stream captures; "" or why nothing came of it. The stream captures no
// longer afterwards, and no error is left behind.
std::string capture(const std::function<void()>& issue, Captured& captured) {
  // Of this thread alone: lanes beside it allocate, and watchers of collectives query their events,
  // at any time. What this thread may not do while it captures (allocate, wait) still fails, where
  // the relaxed mode would leave it out of the graph without a word.
  const cudaError_t begun = cudaStreamBeginCapture(stream(), cudaStreamCaptureModeThreadLocal);
  if (begun != cudaSuccess) {
    cudaGetLastError();
    return std::string("the stream cannot capture: ") + cudaGetErrorString(begun);
  }
  is_capturing = true;
  spoiled_by = nullptr;
  std::string why;
  try {
    issue();
  } catch (const std::exception& error) {
    why = error.what();
  } catch (...) {
    why = "something was thrown that is no error of this program";
  }
  is_capturing = false;
  if (spoiled_by) why = std::string(std::exchange(spoiled_by, nullptr)) + " cannot be captured";
  const cudaError_t ended = cudaStreamEndCapture(stream(), &captured.graph);
  cudaGetLastError();
  if (why.empty() && ended != cudaSuccess) {
    why = std::string("the capture failed: ") + cudaGetErrorString(ended);
  }
  if (why.empty() && captured.graph == nullptr) why = "the capture gave no graph";
  return why;
}

}  // namespace

void not_capturable(const char* what) {
  if (is_capturing) throw DeviceError(std::string(what) + " cannot be captured");
}

bool spoil_capture(const char* what) noexcept {
  if (is_capturing) spoiled_by = what;
  return is_capturing;
}

std::mutex& capture_mutex() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

std::unique_ptr<CapturedWork> capture_graph(const std::function<void()>& issue, std::string& why) {
  const std::lock_guard lock(capture_mutex());
  Captured captured;
  why = capture(issue, captured);
  if (!why.empty()) return {};
  cudaGraphExec_t executable = nullptr;
  try {
    why = what_cannot_repeat(captured.graph);
    if (!why.empty()) return {};
    VITRINE_GPU_CHECK(cudaGraphInstantiate(&executable, captured.graph, 0));
  } catch (const Error& error) {  // a graph that cannot be, or no memory for it
    why = error.what();
    return {};
  }
  return std::make_unique<Graph>(executable);
}

}  // namespace vitrine::gpu

// One GPU as a device: a stream a lane, an event a mark, and a cache of freed blocks.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <vector>

#include "core/error.h"
#include "core/parallel.h"
#include "gpu/capture_graph.h"
#include "gpu/device_kernels.h"
#include "gpu/fault.h"
#include "gpu/gpu.h"
#include "gpu/runtime.h"

namespace vitrine {
namespace {

using gpu::Event;
using gpu::Stream;

constexpr int kLanes = 8;

class GpuDevice : public Device {
 public:
  explicit GpuDevice(int index) : index_(index) {
    VITRINE_GPU_CHECK(cudaSetDevice(index));
    name_ = "cuda:" + std::to_string(index) + " " + gpu::limits().name;
    for (int lane = 0; lane < kLanes; ++lane) streams_[lane_index(lane)] = Stream::make(lane > 0);
    gpu::use_stream(index, streams_[0].get());
  }
  ~GpuDevice() override {
    const std::lock_guard nobody_captures(gpu::capture_mutex());
    cudaSetDevice(index_);
    cudaDeviceSynchronize();
    for (auto& [size, blocks] : free_) {
      for (Freed& freed : blocks) cudaFree(freed.block);
    }
    for (Stage& stage : stages_) cudaFreeHost(stage.memory);
    gpu::use_stream(index_, nullptr);
  }

  const std::string& name() const override { return name_; }
  bool is_host() const override { return false; }

  void* allocate(size_t bytes) override {
    gpu::not_capturable("memory that is asked for");
    const size_t size = rounded(bytes);
    const cudaStream_t stream = gpu::stream();
    {
      const std::lock_guard lock(mutex_);
      const auto it = free_.find(size);
      if (it != free_.end() && !it->second.empty()) return take(it->second, stream);
    }
    void* block = nullptr;
    cudaError_t code = cudaMalloc(&block, size);
    if (code == cudaErrorMemoryAllocation) {  // what is kept in other sizes may be enough
      cudaGetLastError();
      drop_cache();
      code = cudaMalloc(&block, size);
    }
    if (code == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      return nullptr;
    }
    VITRINE_GPU_CHECK(code);
    const std::lock_guard lock(mutex_);
    reserved_ += size;
    return block;
  }

  void release(void* block, size_t bytes) noexcept override {
    try {
      if (gpu::spoil_capture("memory that is given back")) {
        const std::lock_guard lock(mutex_);
        released_late_.emplace_back(block, bytes);
        return;
      }
      const std::lock_guard lock(mutex_);
      Freed freed{block, gpu::stream(), new_event()};
      VITRINE_GPU_CHECK(cudaEventRecord(freed.event.get(), freed.stream));
      free_[rounded(bytes)].push_back(std::move(freed));
    } catch (const Error&) {  // the device is gone; its memory with it
    }
  }
  size_t reserved_bytes() const override {
    const std::lock_guard lock(mutex_);
    return reserved_ + gpu::workspace_bytes();
  }

  void zero(void* to, size_t bytes) override {
    VITRINE_GPU_CHECK(cudaMemsetAsync(to, 0, bytes, gpu::stream()));
  }
  void copy(void* to, const void* from, size_t bytes) override {
    VITRINE_GPU_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, gpu::stream()));
  }
  void upload(void* to, const void* host, size_t bytes) override {
    gpu::not_capturable("a copy from the host");
    if (bytes < kStagedBytes) {  // pageable memory is staged by the driver before the call returns
      VITRINE_GPU_CHECK(cudaMemcpyAsync(to, host, bytes, cudaMemcpyHostToDevice, gpu::stream()));
      return;
    }
    // Through pinned memory filled by all threads: the driver's own staging is slower and waits.
    const std::lock_guard lock(staging_mutex_);
    for (size_t at = 0; at < bytes; at += kStageBytes) {
      Stage& stage = stages_[next_stage_++ % stages_.size()];
      if (!stage.memory) {
        VITRINE_GPU_CHECK(cudaMallocHost(&stage.memory, kStageBytes));
        stage.free = Event::make();
      } else {
        VITRINE_GPU_CHECK(cudaEventSynchronize(stage.free.get()));
      }
      const size_t part = std::min(kStageBytes, bytes - at);
      copy_on_host(stage.memory, static_cast<const char*>(host) + at, part);
      VITRINE_GPU_CHECK(cudaMemcpyAsync(
          static_cast<char*>(to) + at, stage.memory, part, cudaMemcpyHostToDevice, gpu::stream()));
      VITRINE_GPU_CHECK(cudaEventRecord(stage.free.get(), gpu::stream()));
    }
  }
  void download(void* host, const void* from, size_t bytes) override {
    gpu::not_capturable("a copy to the host");
    VITRINE_GPU_CHECK(cudaMemcpyAsync(host, from, bytes, cudaMemcpyDeviceToHost, gpu::stream()));
    VITRINE_GPU_CHECK(cudaStreamSynchronize(gpu::stream()));
  }
  void convert(DType to, void* destination, DType from, const void* source, int64_t n) override {
    gpu::convert_array(to, destination, from, source, n);
  }
  void add(DType dtype, void* sum, const void* term, int64_t count) override {
    gpu::add_array(dtype, sum, term, count);
  }

  void enter_lane(int lane) override { gpu::use_stream(index_, streams_[lane_index(lane)].get()); }
  void mark(int index) override {
    gpu::not_capturable("a mark");
    VITRINE_GPU_CHECK(cudaEventRecord(mark_event(index), gpu::stream()));
  }
  void wait(int index) override {
    gpu::not_capturable("a wait for another lane");
    const bool compute = gpu::stream() == streams_[0].get();
    if (compute) waiting_begins();
    VITRINE_GPU_CHECK(cudaStreamWaitEvent(gpu::stream(), mark_event(index), 0));
    if (compute) waiting_ends();
  }
  std::shared_ptr<void> point() override {
    gpu::not_capturable("a mark");
    const auto give_back = [this](Event* done) {
      const std::lock_guard lock(mutex_);
      events_.push_back(std::move(*done));
      delete done;
    };
    std::shared_ptr<Event> event(new Event(pooled_event()), give_back);
    VITRINE_GPU_CHECK(cudaEventRecord(event->get(), gpu::stream()));
    return event;
  }
  void after(const std::shared_ptr<void>& point) override {
    if (!point) return;
    gpu::not_capturable("a wait for another lane");
    const auto* event = static_cast<const Event*>(point.get());
    VITRINE_GPU_CHECK(cudaStreamWaitEvent(gpu::stream(), event->get(), 0));
  }
  bool passed(const std::shared_ptr<void>& point) override {
    if (!point) return true;
    const cudaError_t code = cudaEventQuery(static_cast<const Event*>(point.get())->get());
    if (code == cudaErrorNotReady) {
      cudaGetLastError();
      return false;
    }
    VITRINE_GPU_CHECK(code);
    return true;
  }
  std::shared_ptr<void> timed_point() override {
    gpu::not_capturable("a mark");
    auto event = std::make_shared<Event>(Event::make(/*timed=*/true));
    VITRINE_GPU_CHECK(cudaEventRecord(event->get(), gpu::stream()));
    return event;
  }
  int64_t elapsed_ns(const std::shared_ptr<void>& from, const std::shared_ptr<void>& to) override {
    float ms = 0;
    VITRINE_GPU_CHECK(cudaEventElapsedTime(&ms,
                                           static_cast<const Event*>(from.get())->get(),
                                           static_cast<const Event*>(to.get())->get()));
    return static_cast<int64_t>(static_cast<double>(ms) * 1e6);
  }
  void waiting_begins() override { stamp(); }
  void waiting_ends() override { stamp(); }
  int64_t take_waited_ns() override {
    double sum = 0;
    for (size_t i = 0; i + 1 < stamps_used_; i += 2) {
      float ms = 0;
      VITRINE_GPU_CHECK(cudaEventElapsedTime(&ms, stamps_[i].get(), stamps_[i + 1].get()));
      sum += static_cast<double>(ms) * 1e6;
    }
    stamps_used_ = 0;
    return static_cast<int64_t>(sum);
  }
  std::unique_ptr<CapturedWork> capture_work(const std::function<void()>& issue,
                                             std::string& why) override {
    std::unique_ptr<CapturedWork> work = gpu::capture_graph(issue, why);
    std::vector<std::pair<void*, size_t>> late;
    {
      const std::lock_guard lock(mutex_);
      late.swap(released_late_);
    }
    for (const auto& [block, bytes] : late) release(block, bytes);
    return work;
  }
  const void* lane_scratch() const override { return gpu::workspace_now(); }
  // Within a lane the block that was freed last is taken first, as its lines may still be in the
  // cache; this sets what that begins from.
  void order_free_blocks() override {
    const std::lock_guard lock(mutex_);
    const auto higher = [](const Freed& a, const Freed& b) { return a.block > b.block; };
    for (auto& [size, blocks] : free_) {
      if (!std::is_sorted(blocks.begin(), blocks.end(), higher)) {
        std::sort(blocks.begin(), blocks.end(), higher);
      }
    }
  }
  void synchronize_lane() override {
    gpu::not_capturable("a wait for the device");
    VITRINE_GPU_CHECK(cudaStreamSynchronize(gpu::stream()));
    gpu::check_faults();
  }
  void synchronize() override {
    gpu::not_capturable("a wait for the device");
    for (const Stream& stream : streams_) VITRINE_GPU_CHECK(cudaStreamSynchronize(stream.get()));
    gpu::check_faults();
  }

 private:
  static constexpr size_t kStagedBytes = size_t{256} << 10, kStageBytes = size_t{8} << 20;
  struct Stage {
    void* memory = nullptr;  // pinned, kStageBytes
    Event free;              // its last copy is done
  };
  static void copy_on_host(void* to, const void* from, size_t bytes) {
    constexpr size_t kPiece = size_t{256} << 10;
    parallel_for(static_cast<int64_t>((bytes + kPiece - 1) / kPiece), 2, [&](int64_t a, int64_t b) {
      const size_t begin = static_cast<size_t>(a) * kPiece;
      const size_t end = std::min(bytes, static_cast<size_t>(b) * kPiece);
      std::memcpy(
          static_cast<char*>(to) + begin, static_cast<const char*>(from) + begin, end - begin);
    });
  }

  struct Freed {
    void* block;
    cudaStream_t stream;  // that released it, at `event`
    Event event;
  };

  static size_t lane_index(int lane) { return static_cast<size_t>(lane) % kLanes; }
  static size_t rounded(size_t bytes) {
    constexpr size_t kSmall = 512, kLarge = size_t{2} << 20;
    const size_t step = bytes >= kLarge ? size_t{64} << 10 : kSmall;
    return (bytes + step - 1) / step * step;
  }

  // A block that this stream released itself costs nothing, the last of them is likeliest to be in
  // the caches; another's costs the wait for its release, and the first in line is likeliest to be
  // done. With mutex_ held.
  void* take(std::deque<Freed>& blocks, cudaStream_t stream) {
    auto it = blocks.begin();
    for (auto own = blocks.rbegin(); own != blocks.rend(); ++own) {
      if (own->stream == stream) {
        it = std::prev(own.base());
        break;
      }
    }
    if (it->stream != stream) {
      VITRINE_GPU_CHECK(cudaStreamWaitEvent(stream, it->event.get(), 0));
    }
    void* block = it->block;
    events_.push_back(std::move(it->event));
    blocks.erase(it);
    return block;
  }

  // With mutex_ held.
  Event new_event() {
    if (events_.empty()) return Event::make();
    Event event = std::move(events_.back());
    events_.pop_back();
    return event;
  }

  // Begin and end of a wait, in turn; by the compute lane's thread alone.
  void stamp() {
    gpu::not_capturable("a mark");
    if (stamps_used_ == stamps_.size()) stamps_.push_back(Event::make(/*timed=*/true));
    VITRINE_GPU_CHECK(cudaEventRecord(stamps_[stamps_used_++].get(), gpu::stream()));
  }

  Event pooled_event() {
    const std::lock_guard lock(mutex_);
    return new_event();
  }

  cudaEvent_t mark_event(int index) {
    const std::lock_guard lock(mutex_);
    while (marks_.size() <= static_cast<size_t>(index)) marks_.push_back(Event::make());
    return marks_[static_cast<size_t>(index)].get();
  }

  void drop_cache() {
    const std::lock_guard nobody_captures(gpu::capture_mutex());
    VITRINE_GPU_CHECK(cudaDeviceSynchronize());
    const std::lock_guard lock(mutex_);
    for (auto& [size, blocks] : free_) {
      for (Freed& freed : blocks) {
        VITRINE_GPU_CHECK(cudaFree(freed.block));
        reserved_ -= size;
      }
    }
    free_.clear();
  }

  int index_;
  std::string name_;
  std::array<Stream, kLanes> streams_;
  mutable std::mutex mutex_;
  std::map<size_t, std::deque<Freed>> free_;
  std::vector<Event> events_;
  std::vector<std::pair<void*, size_t>> released_late_;  // while work was captured
  std::deque<Event> marks_, stamps_;
  std::mutex staging_mutex_;
  std::array<Stage, 4> stages_;
  size_t next_stage_ = 0;
  size_t stamps_used_ = 0;
  size_t reserved_ = 0;
};

}  // namespace

std::string why_no_gpu() {
  // A stream that waits for another GPU must not share its hardware queue with others; the driver
  // reads these when it is first used.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);
  setenv("CUDA_DEVICE_MAX_COPY_CONNECTIONS", "32", /*overwrite=*/0);
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code == cudaSuccess && count > 0) return "";
  cudaGetLastError();
  int driver = 0, runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  const auto version = [](int v) {
    return std::to_string(v / 1000) + "." + std::to_string(v % 1000 / 10);
  };
  if (driver == 0) return "no NVIDIA driver is loaded on this machine (nvidia-smi shows it)";
  if (driver / 1000 < runtime / 1000) {
    return "the NVIDIA driver knows CUDA " + version(driver) + ", this build wants CUDA " +
           version(runtime) + ": update the driver";
  }
  return std::string("no GPU can be used (") + cudaGetErrorString(code) +
         "; CUDA_VISIBLE_DEVICES may hide it)";
}

std::vector<GpuDescription> gpu_devices() {
  const std::string why = why_no_gpu();
  if (!why.empty()) throw DeviceError(why);
  int count = 0;
  VITRINE_GPU_CHECK(cudaGetDeviceCount(&count));
  std::vector<GpuDescription> all;
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp p{};
    VITRINE_GPU_CHECK(cudaGetDeviceProperties(&p, i));
    all.push_back({i, p.name, p.major, p.minor, p.multiProcessorCount, p.totalGlobalMem});
  }
  return all;
}

std::unique_ptr<Device> make_gpu_device(int index) {
  const std::vector<GpuDescription> all = gpu_devices();
  if (index < 0 || index >= static_cast<int>(all.size())) {
    throw DeviceError("GPU " + std::to_string(index) + " is not there: this process can see " +
                      std::to_string(all.size()) +
                      "; start as many ranks a machine as it has GPUs, or look at "
                      "CUDA_VISIBLE_DEVICES");
  }
  const GpuDescription& gpu = all[static_cast<size_t>(index)];
  if (gpu.major < 8) {
    throw DeviceError("GPU " + std::to_string(index) + " (" + gpu.name + ") has architecture " +
                      std::to_string(gpu.major) + "." + std::to_string(gpu.minor) +
                      ", the kernels need 8.0 (A100) or newer");
  }
  return std::make_unique<GpuDevice>(index);
}

}  // namespace vitrine

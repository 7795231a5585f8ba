// A device that records work as a GPU does, on the host: its backend notes each operation with the
// operands of that call, and issuing again runs it on those operands, whatever has moved since.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/philox.h"
#include "ops/op.h"
#include "support/forwarding_device.h"

namespace vitrine::testing {

using Recording = std::vector<std::function<void()>>;
inline thread_local Recording* recording = nullptr;  // of the calling thread's lane

class ReplayDevice : public ForwardingDevice {
 public:
  // Each size of blocks begins a step in one of two orders.
  bool restless = false;
  // A device beside the host, to which batches come ahead.
  bool apart = false;

  ~ReplayDevice() override {
    for (auto& [size, blocks] : free_) {
      for (const Freed& freed : blocks) ForwardingDevice::release(freed.block, size);
    }
  }
  bool is_host() const override { return !apart; }
  void enter_lane(int lane) override { lane_of_thread = lane; }
  // As a GPU's: what this lane freed last of that size, else what others freed first.
  void* allocate(size_t bytes) override {
    not_capturable();
    {
      const std::lock_guard lock(mutex_);
      auto& blocks = free_[bytes];
      if (!blocks.empty()) return take(blocks);
    }
    return ForwardingDevice::allocate(bytes);
  }
  void release(void* block, size_t bytes) noexcept override {
    const std::lock_guard lock(mutex_);
    free_[bytes].push_back({block, lane_of_thread});
  }
  void order_free_blocks() override {
    const std::lock_guard lock(mutex_);
    ++orders_;
    for (auto& [size, blocks] : free_) {
      std::ranges::sort(blocks, std::greater<>(), &Freed::block);
      if (restless && Philox(size, orders_).below(2, 0) == 1) std::ranges::reverse(blocks);
    }
  }
  void zero(void* to, size_t bytes) override {
    if (!recording) return ForwardingDevice::zero(to, bytes);
    recording->emplace_back([this, to, bytes] { ForwardingDevice::zero(to, bytes); });
  }
  void upload(void* to, const void* host, size_t bytes) override {
    not_capturable();
    ForwardingDevice::upload(to, host, bytes);
  }

  std::unique_ptr<CapturedWork> capture_work(const std::function<void()>& issue,
                                             std::string& why) override {
    auto work = std::make_unique<Work>();
    recording = &work->calls;
    try {
      issue();
    } catch (const Error& error) {
      why = error.what();
    }
    recording = nullptr;
    if (!why.empty()) return {};
    return work;
  }

 private:
  struct Work : CapturedWork {
    Recording calls;
    void issue() override {
      for (const auto& call : calls) call();
    }
  };
  static void not_capturable() {
    if (recording) throw DeviceError("not while work is recorded");
  }
  struct Freed {
    void* block;
    int lane;
  };
  static void* take(std::vector<Freed>& blocks) {
    const auto own = std::find_if(blocks.rbegin(), blocks.rend(), [](const Freed& freed) {
      return freed.lane == lane_of_thread;
    });
    const auto it = own == blocks.rend() ? blocks.begin() : std::prev(own.base());
    void* block = it->block;
    blocks.erase(it);
    return block;
  }

  std::mutex mutex_;
  static inline thread_local int lane_of_thread = 0;
  uint64_t orders_ = 0;
  std::map<size_t, std::vector<Freed>> free_;
};

// --- a backend whose operations are noted where the thread records
namespace replay {

constexpr size_t kMostOps = 96;
inline std::array<OpKernels, kMostOps> kernels;

// A call's operands, kept.
struct Kept {
  explicit Kept(const OpCall& call)
      : in(call.in.begin(), call.in.end()),
        out(call.out.begin(), call.out.end()),
        saved(call.saved.begin(), call.saved.end()),
        attrs(call.attrs),
        workspace(call.workspace) {}
  OpCall call() const {
    OpCall again;
    again.attrs = attrs;
    again.in = in;
    again.out = out;
    again.saved = saved;
    again.workspace = workspace;
    return again;
  }
  std::vector<TensorView> in, out, saved;
  const Attrs* attrs;  // of the tape, which outlives what is recorded
  void* workspace;
};

template <size_t I>
void forward(const OpCall& call) {
  if (!recording) return kernels[I].forward(call);
  recording->emplace_back([kept = Kept(call)] { kernels[I].forward(kept.call()); });
}

template <size_t I>
void backward(const OpCall& call, std::span<const TensorView> dout, std::span<const GradView> din) {
  if (!recording) return kernels[I].backward(call, dout, din);
  recording->emplace_back([kept = Kept(call),
                           dout = std::vector<TensorView>(dout.begin(), dout.end()),
                           din = std::vector<GradView>(din.begin(), din.end())] {
    kernels[I].backward(kept.call(), dout, din);
  });
}

template <size_t... I>
std::array<OpKernels, kMostOps> noted(std::index_sequence<I...>) {
  return {OpKernels{forward<I>, backward<I>}...};
}

}  // namespace replay

// The plain loops.
inline const Backend& replay_backend() {
  static const Backend* backend = [] {
    const auto noted = replay::noted(std::make_index_sequence<replay::kMostOps>());
    auto* made = new Backend("replay");
    size_t next = 0;
    for (const std::string& name : op_names()) {
      if (!reference_backend().has(name)) continue;
      replay::kernels.at(next) = reference_backend().kernels(name);
      made->add(name, noted.at(next++));
    }
    return made;
  }();
  return *backend;
}

}  // namespace vitrine::testing

// Copies in, the call, the wait, copies out.
#include "comm/staged_communicator.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"

namespace vitrine::testing {

class StagedCommunicator::Staged {
 public:
  Staged(Device& device, const void* host, size_t bytes) : device_(device), bytes_(bytes) {
    block_ = static_cast<std::byte*>(device.allocate(std::max<size_t>(bytes, 1)));
    if (!block_) throw OutOfMemory("no device memory for a staged call");
    if (bytes > 0) device.upload(block_, host, bytes);
  }
  ~Staged() { device_.release(block_, std::max<size_t>(bytes_, 1)); }
  Staged(const Staged&) = delete;
  Staged& operator=(const Staged&) = delete;
  std::span<std::byte> span() const { return {block_, bytes_}; }
  void take(void* host) const {
    if (bytes_ > 0) device_.download(host, block_, bytes_);
  }

 private:
  Device& device_;
  std::byte* block_ = nullptr;
  size_t bytes_;
};

void StagedCommunicator::wait() {
  device_.synchronize();
  world_.check();
}

void StagedCommunicator::all_gather(std::span<const std::byte> in, std::span<std::byte> out) {
  const Staged to(device_, out.data(), out.size());
  const bool in_place = in.data() >= out.data() && in.data() < out.data() + out.size();
  if (in_place) {
    inner_.all_gather(to.span().subspan(static_cast<size_t>(in.data() - out.data()), in.size()),
                      to.span());
    wait();
  } else {
    const Staged from(device_, in.data(), in.size());
    inner_.all_gather(from.span(), to.span());
    wait();
  }
  to.take(out.data());
}

void StagedCommunicator::all_to_all(std::span<const std::byte> in, std::span<std::byte> out) {
  const Staged from(device_, in.data(), in.size()), to(device_, out.data(), out.size());
  inner_.all_to_all(from.span(), to.span());
  wait();
  to.take(out.data());
}

void StagedCommunicator::all_to_all_v(std::span<const std::byte> in,
                                      std::span<const int64_t> in_bytes,
                                      std::span<std::byte> out,
                                      std::span<const int64_t> out_bytes) {
  const Staged from(device_, in.data(), in.size()), to(device_, out.data(), out.size());
  inner_.all_to_all_v(from.span(), in_bytes, to.span(), out_bytes);
  wait();
  to.take(out.data());
}

void StagedCommunicator::broadcast(std::span<std::byte> data, int root) {
  const Staged both(device_, data.data(), data.size());
  inner_.broadcast(both.span(), root);
  wait();
  both.take(data.data());
}

void StagedCommunicator::send(std::span<const std::byte> data, int to) {
  const Staged from(device_, data.data(), data.size());
  inner_.send(from.span(), to);
  wait();
}

void StagedCommunicator::receive(std::span<std::byte> data, int from) {
  const Staged to(device_, data.data(), data.size());
  inner_.receive(to.span(), from);
  wait();
  to.take(data.data());
}

void StagedCommunicator::barrier() {
  inner_.barrier();
  wait();
}

void StagedCommunicator::reduce_scatter(void* in, void* out, int64_t count, DType dtype) {
  const size_t bytes = static_cast<size_t>(count) * dtype_bytes(dtype);
  const Staged from(device_, in, bytes * static_cast<size_t>(size())), to(device_, out, bytes);
  inner_.reduce_scatter(from.span().data(), to.span().data(), count, dtype);
  wait();
  to.take(out);
}

void StagedCommunicator::all_reduce(void* data, int64_t count, DType dtype) {
  const Staged both(device_, data, static_cast<size_t>(count) * dtype_bytes(dtype));
  inner_.all_reduce(both.span().data(), count, dtype);
  wait();
  both.take(data);
}

void StagedCommunicator::all_gather_v(std::span<const std::byte> in,
                                      std::span<std::byte> out,
                                      std::span<const int64_t> out_bytes) {
  const Staged from(device_, in.data(), in.size()), to(device_, out.data(), out.size());
  inner_.all_gather_v(from.span(), to.span(), out_bytes);
  wait();
  to.take(out.data());
}

void StagedCommunicator::reduce_scatter_v(void* in,
                                          std::span<const int64_t> counts,
                                          void* out,
                                          DType dtype) {
  const auto total = static_cast<size_t>(std::accumulate(counts.begin(), counts.end(), int64_t{0}));
  const auto mine = static_cast<size_t>(counts[static_cast<size_t>(rank())]);
  const Staged from(device_, in, total * dtype_bytes(dtype));
  const Staged to(device_, out, mine * dtype_bytes(dtype));
  inner_.reduce_scatter_v(from.span().data(), counts, to.span().data(), dtype);
  wait();
  to.take(out);
}

void StagedCommunicator::all_reduce_int64(std::span<int64_t> data) {
  const Staged both(device_, data.data(), data.size_bytes());
  inner_.all_reduce_int64(
      {reinterpret_cast<int64_t*>(both.span().data()), both.span().size() / sizeof(int64_t)});
  wait();
  both.take(data.data());
}

void StagedCommunicator::exchange(std::span<const std::byte>, std::span<std::byte>) {
  throw Error("only the host's reduce_scatter exchanges");
}

}  // namespace vitrine::testing

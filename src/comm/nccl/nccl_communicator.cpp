// Each collective as the NCCL calls it is made of; uneven pieces as grouped calls.
#include "comm/nccl/nccl_communicator.h"

#include <algorithm>

#include "comm/call_checks.h"
#include "core/error.h"
#include "core/format.h"

namespace vitrine {

namespace {

ncclDataType_t nccl_type(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return ncclFloat32;
    case DType::kBF16:
      return ncclBfloat16;
    case DType::kF16:
      return ncclFloat16;
    case DType::kF64:
      return ncclFloat64;
    case DType::kI32:
      return ncclInt32;
    case DType::kU8:
      return ncclUint8;
  }
  return ncclUint8;
}

bool all_equal(std::span<const int64_t> counts) {
  return std::equal(counts.begin() + 1, counts.end(), counts.begin());
}

// The calls that `body` makes become one launch. The first error wins; the group is always closed.
template <typename Body>
ncclResult_t grouped(Body&& body) {
  const ncclResult_t begun = ncclGroupStart();
  if (begun != ncclSuccess) return begun;
  const ncclResult_t inside = body();
  const ncclResult_t ended = ncclGroupEnd();
  return inside != ncclSuccess ? inside : ended;
}

void copy_unless_same(void* to, const void* from, size_t bytes, cudaStream_t stream) {
  if (to == from || bytes == 0) return;
  VITRINE_GPU_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream));
}

}  // namespace

NcclCommunicator::NcclCommunicator(ncclComm_t comm,
                                   std::shared_ptr<Communicator> host,
                                   std::shared_ptr<NcclWatch> watch,
                                   std::vector<int> ranks,
                                   int rank,
                                   std::string name,
                                   std::chrono::milliseconds timeout)
    : comm_(comm),
      host_(std::move(host)),
      watch_(std::move(watch)),
      ranks_(std::move(ranks)),
      rank_(rank),
      name_(std::move(name)),
      timeout_(timeout) {
  VITRINE_GPU_CHECK(cudaMalloc(&token_, 64 * ranks_.size()));
  VITRINE_GPU_CHECK(cudaMemsetAsync(token_, 0, 64 * ranks_.size(), gpu::stream()));
  watch_->add(this);
}

NcclCommunicator::~NcclCommunicator() {
  watch_->remove(this);
  bool idle = true;
  for (const Pending& call : pending_) {
    idle = idle && cudaEventQuery(call.event.get()) == cudaSuccess;
  }
  if (!idle && copies_) copies_->release();
  // Destroying would wait for ever for a call that a peer will not join.
  if (comm_ != nullptr) idle ? ncclCommDestroy(comm_) : ncclCommAbort(comm_);
  cudaFree(token_);
}

std::string NcclCommunicator::error_text(ncclResult_t code) const {
  const char* last = comm_ ? ncclGetLastError(comm_) : nullptr;
  std::string text = std::string("NCCL: ") + ncclGetErrorString(code);
  if (last != nullptr && *last != '\0') text += std::string(" (") + last + ")";
  return text;
}

template <typename Call>
void NcclCommunicator::issue(const char* collective, Call&& call) {
  std::string error;
  {
    const std::lock_guard lock(mutex_);
    if (watch_->failed()) watch_->check(describe(collective));
    if (comm_ == nullptr && size() > 1) {
      throw CommError(describe(collective) + ": the communicator was aborted");
    }
    const cudaStream_t stream = gpu::stream();
    issued_ = collective;
    const ncclResult_t code = call(stream);
    if (code == ncclSuccess) {
      remember(collective, stream);
      return;
    }
    error = describe(collective) + ": " + error_text(code);
  }
  watch_->fail_with_suspect(error);
  watch_->check();
}

// With mutex_ held.
void NcclCommunicator::remember(const char* collective, cudaStream_t stream) {
  if (comm_ == nullptr) return;
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  VITRINE_GPU_CHECK(cudaStreamIsCapturing(stream, &capture));
  if (capture != cudaStreamCaptureStatusNone) return;  // its events could not be asked
  Pending call{{}, describe(collective), Clock::now()};
  if (free_events_.empty()) {
    call.event = gpu::Event::make();
  } else {
    call.event = std::move(free_events_.back());
    free_events_.pop_back();
  }
  VITRINE_GPU_CHECK(cudaEventRecord(call.event.get(), stream));
  if (pending_.empty()) head_since_ = call.issued;
  pending_.push_back(std::move(call));
}

std::string NcclCommunicator::look() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || comm_ == nullptr) return "";  // a call is being issued: not idle
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state);
  if (asked != ncclSuccess) state = asked;
  const std::string oldest = pending_.empty() ? "group '" + name_ + "'" : pending_.front().text;
  if (state != ncclSuccess && state != ncclInProgress) return oldest + ": " + error_text(state);
  while (!pending_.empty()) {
    const cudaError_t done = cudaEventQuery(pending_.front().event.get());
    if (done == cudaErrorNotReady) {
      cudaGetLastError();
      if (Clock::now() - head_since_ <= timeout_) return "";
      return pending_.front().text + ": waited " +
             format_ns(static_cast<double>(timeout_.count()) * 1e6) + " on the device";
    }
    if (done != cudaSuccess) {
      return pending_.front().text + ": the GPU reports " + cudaGetErrorString(done);
    }
    free_events_.push_back(std::move(pending_.front().event));
    pending_.pop_front();
    head_since_ = Clock::now();
  }
  return "";
}

bool NcclCommunicator::end() noexcept {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return false;
  if (copies_) copies_->release();
  if (comm_ != nullptr) ncclCommAbort(comm_);
  comm_ = nullptr;
  pending_.clear();
  return true;
}

void NcclCommunicator::abort() noexcept {
  watch_->fail("aborted by rank " + std::to_string(ranks_[own()]), -1);
  end();
}

void NcclCommunicator::all_gather(std::span<const std::byte> in, std::span<std::byte> out) {
  check_bytes(*this, "all_gather", in.size() * ranks_.size(), out.size());
  if (out.empty()) return;
  issue("all_gather", [&](cudaStream_t stream) {
    if (size() == 1) return copy_unless_same(out.data(), in.data(), in.size(), stream), ncclSuccess;
    return ncclAllGather(in.data(), out.data(), in.size(), ncclUint8, comm_, stream);
  });
}

void NcclCommunicator::all_gather_v(std::span<const std::byte> in,
                                    std::span<std::byte> out,
                                    std::span<const int64_t> out_bytes) {
  check_counts(*this, "all_gather_v", out_bytes, out.size());
  check_bytes(*this, "all_gather_v", static_cast<size_t>(out_bytes[own()]), in.size());
  if (all_equal(out_bytes)) return all_gather(in, out);
  issue("all_gather_v", [&](cudaStream_t stream) {
    return grouped([&] {
      ncclResult_t code = ncclSuccess;
      std::byte* piece = out.data();
      for (int r = 0; r < size() && code == ncclSuccess; ++r) {
        const auto bytes = static_cast<size_t>(out_bytes[static_cast<size_t>(r)]);
        const void* from = r == rank_ ? in.data() : piece;
        if (bytes > 0) code = ncclBroadcast(from, piece, bytes, ncclUint8, r, comm_, stream);
        piece += bytes;
      }
      return code;
    });
  });
}

template <typename Sent, typename Received>
ncclResult_t NcclCommunicator::swap_with_all(cudaStream_t stream,
                                             const Sent& sent,
                                             const Received& received) {
  return grouped([&] {
    ncclResult_t code = ncclSuccess;
    for (size_t r = 0; r < ranks_.size() && code == ncclSuccess; ++r) {
      if (r == own()) continue;
      const int peer = static_cast<int>(r);
      const std::span<const std::byte> to = sent(r);
      const std::span<std::byte> from = received(r);
      if (!to.empty()) code = ncclSend(to.data(), to.size(), ncclUint8, peer, comm_, stream);
      if (!from.empty() && code == ncclSuccess)
        code = ncclRecv(from.data(), from.size(), ncclUint8, peer, comm_, stream);
    }
    return code;
  });
}

void NcclCommunicator::all_to_all(std::span<const std::byte> in, std::span<std::byte> out) {
  check_bytes(*this, "all_to_all", in.size(), out.size());
  check_bytes(*this, "all_to_all", in.size() / ranks_.size() * ranks_.size(), in.size());
  const std::vector<int64_t> pieces(ranks_.size(), static_cast<int64_t>(in.size() / ranks_.size()));
  all_to_all_v(in, pieces, out, pieces);
}

void NcclCommunicator::all_to_all_v(std::span<const std::byte> in,
                                    std::span<const int64_t> in_bytes,
                                    std::span<std::byte> out,
                                    std::span<const int64_t> out_bytes) {
  check_counts(*this, "all_to_all_v", in_bytes, in.size());
  check_counts(*this, "all_to_all_v", out_bytes, out.size());
  check_bytes(*this,
              "all_to_all_v (own piece)",
              static_cast<size_t>(in_bytes[own()]),
              static_cast<size_t>(out_bytes[own()]));
  std::vector<size_t> from(1), to(1);
  for (size_t r = 0; r < ranks_.size(); ++r) {
    from.push_back(from.back() + static_cast<size_t>(in_bytes[r]));
    to.push_back(to.back() + static_cast<size_t>(out_bytes[r]));
  }
  const auto sent = [&](size_t r) { return in.subspan(from[r], from[r + 1] - from[r]); };
  const auto received = [&](size_t r) { return out.subspan(to[r], to[r + 1] - to[r]); };
  issue("all_to_all_v", [&](cudaStream_t stream) {
    const std::span<const std::byte> mine = sent(own());
    copy_unless_same(received(own()).data(), mine.data(), mine.size(), stream);
    return swap_with_all(stream, sent, received);
  });
}

void NcclCommunicator::exchange(std::span<const std::byte> in, std::span<std::byte> out) {
  const size_t piece = in.size() / ranks_.size();
  issue("exchange", [&](cudaStream_t stream) {
    return swap_with_all(
        stream,
        [&](size_t r) { return in.subspan(r * piece, piece); },
        [&](size_t r) { return out.subspan((r < own() ? r : r - 1) * piece, piece); });
  });
}

void NcclCommunicator::broadcast(std::span<std::byte> data, int root) {
  check_peer(*this, "broadcast", root);
  if (size() == 1 || data.empty()) return;
  issue("broadcast", [&](cudaStream_t stream) {
    return ncclBroadcast(data.data(), data.data(), data.size(), ncclUint8, root, comm_, stream);
  });
}

void NcclCommunicator::send(std::span<const std::byte> data, int to) {
  check_peer(*this, "send", to);
  if (data.empty()) return;
  issue("send", [&](cudaStream_t stream) {
    return ncclSend(data.data(), data.size(), ncclUint8, to, comm_, stream);
  });
}

void NcclCommunicator::receive(std::span<std::byte> data, int from) {
  check_peer(*this, "receive", from);
  if (data.empty()) return;
  issue("receive", [&](cudaStream_t stream) {
    return ncclRecv(data.data(), data.size(), ncclUint8, from, comm_, stream);
  });
}

void NcclCommunicator::barrier() { all_reduce_as("barrier", token_, 1, ncclInt32); }

void NcclCommunicator::reduce_scatter(void* in, void* out, int64_t count, DType dtype) {
  if (count == 0) return;
  if (sums_by_copies(dtype)) {
    return reduce_scatter_v(in, std::vector<int64_t>(ranks_.size(), count), out, dtype);
  }
  const auto n = static_cast<size_t>(count);
  issue("reduce_scatter", [&](cudaStream_t stream) {
    if (size() == 1) return copy_unless_same(out, in, n * dtype_bytes(dtype), stream), ncclSuccess;
    return ncclReduceScatter(in, out, n, nccl_type(dtype), ncclSum, comm_, stream);
  });
}

void NcclCommunicator::reduce_scatter_v(void* in,
                                        std::span<const int64_t> counts,
                                        void* out,
                                        DType dtype) {
  if (counts.size() != ranks_.size()) check_counts(*this, "reduce_scatter_v", counts, 0);
  if (!sums_by_copies(dtype) && all_equal(counts)) return reduce_scatter(in, out, counts[0], dtype);
  issue("reduce_scatter_v", [&](cudaStream_t stream) {
    if (sums_by_copies(dtype))
      return copies_->reduce_scatter(in, counts, out, dtype, adder_, stream), ncclSuccess;
    return grouped([&] {
      ncclResult_t code = ncclSuccess;
      const auto* piece = static_cast<const std::byte*>(in);
      for (int r = 0; r < size() && code == ncclSuccess; ++r) {
        const auto count = static_cast<size_t>(counts[static_cast<size_t>(r)]);
        if (count > 0)
          code = ncclReduce(piece, out, count, nccl_type(dtype), ncclSum, r, comm_, stream);
        piece += count * dtype_bytes(dtype);
      }
      return code;
    });
  });
}

void NcclCommunicator::all_reduce_as(const char* collective,
                                     void* data,
                                     size_t count,
                                     ncclDataType_t type) {
  if (size() == 1 || count == 0) return;
  issue(collective, [&](cudaStream_t stream) {
    return ncclAllReduce(data, data, count, type, ncclSum, comm_, stream);
  });
}

void NcclCommunicator::all_reduce(void* data, int64_t count, DType dtype) {
  all_reduce_as("all_reduce", data, static_cast<size_t>(count), nccl_type(dtype));
}

void NcclCommunicator::all_reduce_int64(std::span<int64_t> data) {
  all_reduce_as("all_reduce_int64", data.data(), data.size(), ncclInt64);
}

PeerCopies* NcclCommunicator::copies() {
  if (!asked_for_copies_ && size() > 1) {
    host_->set_context(step_, "the sharing of memory in group '" + name_ + "'");
    std::unique_ptr<PeerCopies> made =
        PeerCopies::make(host_, [this](Clock::time_point since) { lose_patience(since); });
    const std::lock_guard lock(mutex_);
    copies_ = std::move(made);
  }
  asked_for_copies_ = true;
  return copies_.get();
}

// A peer's host has not come to the call that is being made.
void NcclCommunicator::lose_patience(Clock::time_point since) {
  if (!watch_->failed()) {
    if (Clock::now() - since <= timeout_) return;
    watch_->fail_with_suspect(describe(issued_) + ": waited " +
                              format_ns(static_cast<double>(timeout_.count()) * 1e6) +
                              " for its peers");
  }
  watch_->check(describe(issued_));
}

size_t NcclCommunicator::window_bytes(size_t most_reduced) {
  PeerCopies* by_copies = copies();
  return by_copies && most_reduced > 0 ? by_copies->window_bytes(most_reduced) : 0;
}

bool NcclCommunicator::share(std::span<const std::span<const std::byte>> pieces,
                             std::span<std::byte> window) {
  PeerCopies* by_copies = copies();
  window_shared_ = false;
  shared_ = by_copies != nullptr && by_copies->share(pieces, window);
  window_shared_ = shared_ && !window.empty();
  return shared_;
}

void NcclCommunicator::gather_shared(size_t index,
                                     std::span<std::byte> out,
                                     std::span<const int64_t> out_bytes) {
  check_counts(*this, "gather_shared", out_bytes, out.size());
  if (!shared_) return Communicator::gather_shared(index, out, out_bytes);
  issue("all_gather", [&](cudaStream_t stream) {
    return copies_->gather(index, out, out_bytes, stream), ncclSuccess;
  });
}

bool NcclCommunicator::sums_by_copies(DType dtype) const {
  return window_shared_ && (dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16);
}

bool NcclCommunicator::sum_through(TermAdder* adder, DType dtype) {
  const bool can = sums_by_copies(dtype);
  adder_ = can ? adder : nullptr;
  return can;
}

void NcclCommunicator::connect() {
  if (size() == 1) return;
  auto* tokens = static_cast<std::byte*>(token_);
  const std::span<std::byte> all(tokens, 64 * ranks_.size());
  all_gather(all.subspan(64 * own(), 64), all);
  reduce_scatter(tokens, tokens + 64 * own(), 16, DType::kF32);
  barrier();
  // A connection to every peer costs memory on both sides: larger groups make those they use.
  constexpr int kMost = 8;
  if (size() > kMost) return;
  const std::vector<int64_t> pieces(ranks_.size(), 32);
  const size_t half = 32 * ranks_.size();
  all_to_all_v(all.first(half), pieces, all.last(half), pieces);
}

}  // namespace vitrine

// Collectives over one NCCL communicator, or by copy engines where peers share memory, issued into
// the calling thread's stream.
#pragma once

#include <nccl.h>

#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/nccl/nccl_watch.h"
#include "comm/nccl/peer_copies.h"
#include "gpu/runtime.h"

namespace vitrine {

// Calls are asynchronous (comm/nccl/nccl.h) and may be captured in a graph. An event follows each
// call outside a capture, by which the watch knows how old the oldest unfinished one is.
class NcclCommunicator : public Communicator, public Watched {
 public:
  // `comm` is null for a group of one rank, owned otherwise. `host` carries messages of the same
  // ranks in host memory. `ranks` are the group's global ranks.
  NcclCommunicator(ncclComm_t comm,
                   std::shared_ptr<Communicator> host,
                   std::shared_ptr<NcclWatch> watch,
                   std::vector<int> ranks,
                   int rank,
                   std::string name,
                   std::chrono::milliseconds timeout);
  ~NcclCommunicator() override;

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(ranks_.size()); }
  const std::vector<int>& global_ranks() const override { return ranks_; }
  const std::string& name() const override { return name_; }

  void all_gather(std::span<const std::byte> in, std::span<std::byte> out) override;
  void all_to_all(std::span<const std::byte> in, std::span<std::byte> out) override;
  void all_to_all_v(std::span<const std::byte> in,
                    std::span<const int64_t> in_bytes,
                    std::span<std::byte> out,
                    std::span<const int64_t> out_bytes) override;
  void broadcast(std::span<std::byte> data, int root) override;
  // On the device: the stream waits until the receiver's stream has come to its receive().
  void send(std::span<const std::byte> data, int to) override;
  void receive(std::span<std::byte> data, int from) override;
  // What follows in this stream waits for what was before it in every rank's stream.
  void barrier() override;
  void reduce_scatter(void* in, void* out, int64_t count, DType dtype) override;
  void all_reduce(void* data, int64_t count, DType dtype) override;
  void all_gather_v(std::span<const std::byte> in,
                    std::span<std::byte> out,
                    std::span<const int64_t> out_bytes) override;
  void reduce_scatter_v(void* in, std::span<const int64_t> counts, void* out, DType dtype) override;
  // Sums on the way, or in the window of share().
  size_t reduce_scratch(std::span<const int64_t>, DType) const override { return 0; }
  bool sum_through(TermAdder* adder, DType dtype) override;
  void all_reduce_int64(std::span<int64_t> data) override;
  size_t window_bytes(size_t most_reduced) override;
  bool share(std::span<const std::span<const std::byte>> pieces,
             std::span<std::byte> window) override;
  void gather_shared(size_t index,
                     std::span<std::byte> out,
                     std::span<const int64_t> out_bytes) override;
  void abort() noexcept override;

  // Makes the connections that later calls use, so that no later call waits for a peer on the host.
  void connect();

  std::string look() override;
  bool end() noexcept override;

 protected:
  void exchange(std::span<const std::byte> in, std::span<std::byte> out) override;

 private:
  using Clock = std::chrono::steady_clock;
  struct Pending {
    gpu::Event event;
    std::string text;
    Clock::time_point issued;
  };

  // Runs call(stream) unless something failed, turns its error into CommError, and remembers it.
  template <typename Call>
  void issue(const char* collective, Call&& call);
  // One launch that sends sent(r) to, and takes received(r) from, every other rank r.
  template <typename Sent, typename Received>
  ncclResult_t swap_with_all(cudaStream_t stream, const Sent& sent, const Received& received);
  void all_reduce_as(const char* collective, void* data, size_t count, ncclDataType_t type);
  void remember(const char* collective, cudaStream_t stream);
  std::string error_text(ncclResult_t code) const;
  size_t own() const { return static_cast<size_t>(rank_); }

  // Null where it is not to be had; asked for once.
  PeerCopies* copies();
  void lose_patience(Clock::time_point since);
  bool sums_by_copies(DType dtype) const;

  ncclComm_t comm_;
  const std::shared_ptr<Communicator> host_;
  std::unique_ptr<PeerCopies> copies_;
  const char* issued_ = "";  // the collective that is being issued
  bool asked_for_copies_ = false, shared_ = false, window_shared_ = false;
  const std::shared_ptr<NcclWatch> watch_;
  const std::vector<int> ranks_;
  const int rank_;
  const std::string name_;
  const std::chrono::milliseconds timeout_;
  void* token_ = nullptr;  // device memory of a barrier and of connect()
  std::mutex mutex_;       // guards comm_ and the rest; held while a call is issued
  std::deque<Pending> pending_;
  std::vector<gpu::Event> free_events_;
  Clock::time_point head_since_;  // when the oldest pending call became the oldest
};

}  // namespace vitrine

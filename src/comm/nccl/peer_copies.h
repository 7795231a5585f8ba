// Collectives of one host's GPUs by their copy engines: no multiprocessor is taken from the
// products that run beside them. What a rank needs of another's memory it has mapped once (CUDA
// IPC); streams wait for one another by words in device memory.
//
// A stream that waits for a peer's word can hold up its whole process: the first launch of a
// kernel, say, waits for the device with a lock that every other call needs. So a wait is enqueued
// only once the peer has enqueued the write that ends it, which hosts tell each other in shared
// memory: what is enqueued then ends without any host's help.
#pragma once

#include <cuda.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "gpu/runtime.h"

namespace vitrine {

// Of one group and one lane: calls are made in the same order by every rank, each into `stream`,
// and return when every rank has made them. In a stream a call is done when all ranks have what
// they wanted of this one, so what it read may be written again.
//
// Every rank moves its piece once to each other rank over NVLink: at 8 ranks a gather of B bytes
// takes B * 7/8 / (about 0.38 TB/s on H200). A sum reads the pieces and writes one, in all
// (ranks + 1) * B / ranks bytes of device memory.
class PeerCopies {
 public:
  static constexpr int kMostRanks = 16;

  // Asked again and again while a call waits for a peer's host, with the time since when: throws
  // when that is over.
  using Patience = std::function<void(std::chrono::steady_clock::time_point since)>;

  // Collective over `host`. Null on every rank where one of them is on another machine, cannot map
  // or reach another's memory, has too few hardware queues (CUDA_DEVICE_MAX_CONNECTIONS below 16: a
  // stream that waits would hold up others), or wants none (VITRINE_PEER_COPIES=0).
  static std::unique_ptr<PeerCopies> make(std::shared_ptr<Communicator> host, Patience patience);
  ~PeerCopies();
  PeerCopies(const PeerCopies&) = delete;
  PeerCopies& operator=(const PeerCopies&) = delete;

  // Bytes that share() wants as window, for reductions of up to `bytes` in all.
  size_t window_bytes(size_t bytes);
  // Collective. `pieces`: what gather() will be asked for, by index; `window`: where peers put
  // their terms of this rank's sums, of window_bytes(). Both are device memory that lives as long
  // as calls are made. False on every rank where one could not map another's: nothing is shared
  // then.
  bool share(std::span<const std::span<const std::byte>> pieces, std::span<std::byte> window);

  // Every rank's piece `index`, one after the other, out_bytes[r] each. The own one may lie in
  // `out`.
  void gather(size_t index,
              std::span<std::byte> out,
              std::span<const int64_t> out_bytes,
              cudaStream_t stream);
  // As Communicator::reduce_scatter_v, floating dtypes, summed in rank order in f32; by `adder`, if
  // there is one, in pieces that begin at multiples of 64.
  void reduce_scatter(const void* in,
                      std::span<const int64_t> counts,
                      void* out,
                      DType dtype,
                      TermAdder* adder,
                      cudaStream_t stream);

  // Lets every stream go that waits for a peer. Not while a call is made.
  void release() noexcept;

 private:
  // A word a purpose and rank, written by that rank: the number of the round it has come to.
  enum Purpose : size_t { kReady, kTaken, kArrived, kSummed, kPurposes };
  struct Peer {
    std::byte* words = nullptr;   // of all purposes and ranks
    std::byte* window = nullptr;  // null: not shared
    std::vector<const std::byte*> pieces;
  };
  struct Mapped {
    void* base;
    cudaIpcMemHandle_t handle;
    int rank;
  };

  // What a rank's host has enqueued so far, in memory that all hosts of the group see.
  struct alignas(64) Enqueued {
    std::atomic<uint32_t> round[kPurposes];
  };

  PeerCopies(std::shared_ptr<Communicator> host, Patience patience);
  bool share_progress();
  bool map_words();
  bool words_arrive();
  bool everyone(bool mine);
  // Every rank's addresses of `mine`, as this rank sees them; an element [rank][index]. Empty
  // where a rank could not.
  std::vector<std::vector<std::byte*>> exchange(std::span<const std::span<const std::byte>> mine);
  std::byte* map(int rank, const cudaIpcMemHandle_t& handle);

  void tell(Purpose purpose, int peer, uint32_t round, cudaStream_t stream);
  // Every peer has been told `round`.
  void told(Purpose purpose, uint32_t round);
  void await(Purpose purpose, int peer, uint32_t round, cudaStream_t stream);
  void tell_all(Purpose purpose, uint32_t round, cudaStream_t stream);  // and told()
  void await_all(Purpose purpose, uint32_t round, cudaStream_t stream);
  CUdeviceptr word(const std::byte* words, Purpose purpose, int rank) const;
  // Where rank `from`'s terms lie in a window during `round`.
  std::byte* slot(std::byte* window, uint32_t round, int from) const;

  const std::shared_ptr<Communicator> host_;
  const Patience patience_;
  const int rank_, size_;
  Enqueued* enqueued_ = nullptr;  // by rank, mapped
  std::byte* words_ = nullptr;
  gpu::Stream aside_;  // release()'s, so that it stands behind nothing
  std::vector<Mapped> mapped_;
  std::vector<Peer> peers_;
  std::vector<std::byte*> pieces_;  // own
  std::byte* window_ = nullptr;
  size_t slot_bytes_ = 0, wanted_window_ = 0;
  bool released_ = false;
  uint32_t gathers_ = 0, sums_ = 0;  // rounds so far
};

}  // namespace vitrine

// Collectives as pairwise exchanges: over one Gloo context by unbound buffers, or within a host
// through shared memory.
#pragma once

#include <gloo/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/control.h"
#include "comm/shared_pipes.h"

namespace vitrine {

// Gloo's own collectives wait on buffers that nobody else can reach, and end in std::terminate when
// ranks disagree on a size; these can be aborted, say who is missing, and only wait when sizes
// differ. Between processes that want the same processors Gloo's sockets have another fault: its
// thread spins while the thread that it waits for, and keeps from the processor, holds a lock.
class GlooCommunicator : public Communicator, public Abortable {
 public:
  // `context` is null for a group of one rank and where there are pipes. `ranks` are the group's
  // global ranks.
  GlooCommunicator(std::shared_ptr<gloo::Context> context,
                   std::unique_ptr<SharedPipes> pipes,
                   std::shared_ptr<Control> control,
                   std::vector<int> ranks,
                   int rank,
                   std::string name,
                   std::chrono::milliseconds timeout);
  ~GlooCommunicator() override;

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
  void send(std::span<const std::byte> data, int to) override;
  void receive(std::span<std::byte> data, int from) override;
  void barrier() override;
  void abort() noexcept override;
  void fail(const std::string& why, int missing_rank) noexcept override;

 protected:
  void exchange(std::span<const std::byte> in, std::span<std::byte> out) override;

 private:
  // What goes to, or comes from, one peer.
  struct Part {
    int peer;
    std::byte* data;
    size_t bytes;
  };
  enum class Kind : uint8_t {
    kGather,
    kExchange,
    kExchangeV,
    kBroadcast,
    kSend,
    kBarrier,
    kReduce
  };
  struct Call;  // the transfers of one call under way

  static uint64_t slot(Kind kind, uint64_t sequence, size_t bytes);
  static std::byte* writable(std::span<const std::byte> data) {
    return const_cast<std::byte*>(data.data());  // Gloo takes no pointers to const
  }
  size_t count() const { return ranks_.size(); }
  size_t own() const { return static_cast<size_t>(rank_); }

  // Does all transfers of one call. Sends and receives of one peer meet by `sequence`.
  void transfer(const char* collective,
                Kind kind,
                uint64_t sequence,
                const std::vector<Part>& sends,
                const std::vector<Part>& receives);
  // The parts of an exchange with every peer, nearest rank first.
  void transfer_with_all(const char* collective,
                         Kind kind,
                         const std::vector<Part>& sends,
                         const std::vector<Part>& receives);
  void transfer_by_pipes(const char* collective,
                         Kind kind,
                         uint64_t sequence,
                         const std::vector<Part>& sends,
                         const std::vector<Part>& receives);
  void wait(Call& call, Deadline deadline);
  [[noreturn]] void give_up(const char* collective,
                            Call& call,
                            const std::string& why,
                            bool timed_out);
  // `missing` by group rank: those of whom something is missing.
  [[noreturn]] void blame(const char* collective,
                          const std::set<int>& missing,
                          const std::string& why,
                          bool timed_out);
  [[noreturn]] void throw_failure(const std::string& call) const;
  void close() noexcept;

  const std::shared_ptr<gloo::Context> context_;
  const std::unique_ptr<SharedPipes> pipes_;
  const std::shared_ptr<Control> control_;
  const std::vector<int> ranks_;
  const int rank_;
  const std::string name_;
  const std::chrono::milliseconds timeout_;
  uint64_t collectives_ = 0;
  std::vector<uint64_t> sent_, received_;  // messages by peer
  std::mutex mutex_;                       // guards the rest
  Call* call_ = nullptr;
  std::optional<std::string> failure_;
  int missing_rank_ = -1;
};

}  // namespace vitrine

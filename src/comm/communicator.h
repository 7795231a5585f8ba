// Collectives between the ranks of one group, as the runner uses them; one Communicator a (group,
// lane).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/buffer.h"
#include "core/dtype.h"

namespace vitrine {

// Adds up what ranks sent for a reduction; implemented by whoever wants to see the sums while they
// are at hand.
class TermAdder {
 public:
  static constexpr int64_t kChunk = 64;
  virtual ~TermAdder() = default;
  // out[i] = terms[0][i] + terms[1][i] + ..., i < count: in this order in fp32, rounded once to
  // `dtype`; `out` may be one of them. `first`: where out[0] lies in the result of the reduction, a
  // multiple of kChunk. In the calling thread's lane; waits for nothing.
  virtual void add(
      void* out, std::span<const void* const> terms, int64_t first, int64_t count, DType dtype) = 0;
};

// Every rank of the group issues the same calls in the same order, from one thread at a time. Calls
// block until the caller's part is done; on a device (comm/nccl/nccl.h) until it is enqueued. A
// peer that is gone or late, or abort(), turns every pending and later call into CommError, whose
// text names the collective, the step and, where it can be known, the missing rank.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;  // within the group
  virtual int size() const = 0;
  // Global ranks of the group, by group rank.
  virtual const std::vector<int>& global_ranks() const = 0;
  // "gather", "reduce", ...: shown in errors and used as the collectives' tag space.
  virtual const std::string& name() const = 0;

  // out holds size() pieces of in.size() bytes, by rank. `in` may be the caller's own piece of
  // `out`.
  virtual void all_gather(std::span<const std::byte> in, std::span<std::byte> out) = 0;
  // Piece r of `in` goes to rank r; piece r of `out` comes from rank r; pieces are in.size() /
  // size() bytes.
  virtual void all_to_all(std::span<const std::byte> in, std::span<std::byte> out) = 0;
  // Counts in bytes, one a rank; pieces follow each other without gaps.
  virtual void all_to_all_v(std::span<const std::byte> in,
                            std::span<const int64_t> in_bytes,
                            std::span<std::byte> out,
                            std::span<const int64_t> out_bytes) = 0;
  virtual void broadcast(std::span<std::byte> data, int root) = 0;
  // Returns when the receiver has taken the data (two ranks that both send first wait for ever).
  // Sends and receives between two ranks match by order.
  virtual void send(std::span<const std::byte> data, int to) = 0;
  virtual void receive(std::span<std::byte> data, int from) = 0;
  virtual void barrier() = 0;

  // in: size() pieces of `count` elements; out: `count` elements, the sum of all ranks' piece
  // rank(). Summed in rank order in fp32 (fp64 for f64; integers wrap), rounded once to `dtype`.
  // `in` may be overwritten, and `out` may lie within piece rank() of it.
  virtual void reduce_scatter(void* in, void* out, int64_t count, DType dtype);
  // In place, the sum over ranks in rank order: a reduce_scatter of padded pieces and an
  // all_gather, so every rank ends with the same bits.
  virtual void all_reduce(void* data, int64_t count, DType dtype);
  // As all_gather and reduce_scatter with pieces of different sizes: `out_bytes` a rank, `counts`
  // elements a rank (of `in`, whose pieces follow each other). Equal pieces take the paths above.
  virtual void all_gather_v(std::span<const std::byte> in,
                            std::span<std::byte> out,
                            std::span<const int64_t> out_bytes);
  virtual void reduce_scatter_v(void* in, std::span<const int64_t> counts, void* out, DType dtype);
  // Bytes in which reduce_scatter_v holds what it receives; 0 where it needs none of the caller's.
  virtual size_t reduce_scratch(std::span<const int64_t> counts, DType dtype) const;
  // Where the following reductions hold it, until the next call of this; where less is lent than
  // one needs, it takes memory of its own.
  void lend(std::span<std::byte> scratch) { lent_ = scratch; }
  // Has `adder` make the sums of the following reductions, which are of `dtype`, until the next
  // call of this; null: nobody. False, and no call of it, where it is not asked: NCCL adds by
  // itself, and ranks that are processes on CPUs gain nothing by it.
  virtual bool sum_through(TermAdder* /*adder*/, DType /*dtype*/) { return false; }
  // In place element-wise int64 sums (exact, so order-free).
  virtual void all_reduce_int64(std::span<int64_t> data);

  // Memory that peers may read and write by themselves, where a communicator can do that; the calls
  // above do not change. All three are collective over the group.
  // Bytes of `window` that share() wants for reductions of up to `most_reduced` bytes of `in`.
  virtual size_t window_bytes(size_t /*most_reduced*/) { return 0; }
  // Offers this rank's `pieces` to gather_shared(), and `window` to reductions; they must live as
  // long as calls are made. False: nothing is shared, on any rank.
  virtual bool share(std::span<const std::span<const std::byte>> /*pieces*/,
                     std::span<std::byte> /*window*/) {
    return false;
  }
  // After share() was true: all_gather_v of every rank's piece `index`, which may lie in `out`.
  virtual void gather_shared(size_t index,
                             std::span<std::byte> out,
                             std::span<const int64_t> out_bytes);

  // Wakes every pending call on every rank it can reach; safe from any thread; nothing works
  // afterwards.
  virtual void abort() noexcept = 0;

  // What errors say: set by the runner before each call. Kept by reference-free copies.
  void set_context(int64_t step, const std::string& what) {
    step_ = step;
    what_ = what;
  }

  // "all_gather (gather of body.3, step 7, group 'gather')": how errors begin.
  std::string describe(const std::string& collective) const;

 protected:
  // all_to_all for reduce_scatter: peers' pieces by rank, the own piece neither moved nor given
  // room, so `out` is size() - 1 pieces.
  virtual void exchange(std::span<const std::byte> in, std::span<std::byte> out) = 0;

  int64_t step_ = -1;
  std::string what_;  // e.g. "reduce of body.3"
  TermAdder* adder_ = nullptr;

 private:
  // By the adder, or rank_order_sum().
  void add_terms(std::span<const void* const> terms, void* out, int64_t count, DType dtype) const;
  // For one call: lent, or `own`.
  std::byte* scratch(size_t bytes, Buffer& own) const;

  std::span<std::byte> lent_;
};

// Communicator::reduce_scratch of rank `own` of counts.size() on the host.
int64_t reduce_scratch_bytes(std::span<const int64_t> counts, int own, DType dtype);

// All communicators of one rank: makes the ones a schedule asks for.
class World {
 public:
  virtual ~World() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Collective over `ranks` (ascending global ranks, this one among them; a call is made by exactly
  // these ranks, in the same order on each). `name` is unique a (group, lane).
  virtual std::shared_ptr<Communicator> group(const std::vector<int>& ranks,
                                              const std::string& name) = 0;
  // As group(), for messages in host memory, whatever memory group() works on.
  virtual std::shared_ptr<Communicator> host_group(const std::vector<int>& ranks,
                                                   const std::string& name) {
    return group(ranks, name);
  }
  // Where collectives work on a device, their failures come after the calls: throws the CommError
  // of what failed by now. For whoever has waited for the device, or is about to.
  virtual void check() {}
  // Aborts every communicator made so far.
  virtual void abort(const std::string& reason) noexcept = 0;
  // Whom to blame after a CommError: the rank that is gone or that lags behind the others, with a
  // sentence
  // ("rank 2 is gone", "rank 1 has not entered reduce of body.3 in step 7"). rank -1 when unknown.
  struct Suspect {
    int rank = -1;
    std::string sentence;
  };
  virtual Suspect suspect() = 0;
  // Called often and cheaply by the runner: where this rank is now, for suspect() of other ranks.
  virtual void progress(int64_t step, const std::string& what) = 0;
};

// Ranks as threads of one process. Element r is rank r's world; hand each to its own thread.
std::vector<std::unique_ptr<World>> make_local_worlds(
    int ranks, std::chrono::milliseconds timeout = std::chrono::seconds(60));

// Where this process stands among the ranks. From RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE,
// MASTER_ADDR, MASTER_PORT (torchrun, the own launcher), or
// SLURM_PROCID/SLURM_NTASKS/SLURM_LOCALID, or OMPI_COMM_WORLD_*, in this order; one rank alone
// otherwise. Throws ConfigError when half of them is set.
// Under torchrun's agent store (TORCHELASTIC_USE_AGENT_STORE=True) the agent has MASTER_PORT
// itself, so master_port is the next one, which must be free too. Slurm and Open MPI give no port:
// without MASTER_PORT it is 20000 + job id mod 10000, or 29500.
struct RankEnvironment {
  int rank = 0, size = 1, local_rank = 0, local_size = 1;
  // VITRINE_RANKS_PER_GPU: more than 1 to try code of several ranks where there are fewer GPUs.
  int ranks_per_gpu = 1;
  std::string master_address = "127.0.0.1";
  int master_port = 0;
  // Which of the GPUs that this process sees is its own.
  int gpu() const { return local_rank / ranks_per_gpu; }
};
RankEnvironment rank_environment();

// Ranks as processes, through Gloo over TCP. VITRINE_SOCKET_IFNAME (else GLOO_SOCKET_IFNAME)
// chooses the network interface. `timeout` bounds every call. `tell` is called once, from another
// thread, when a rank is gone or has aborted; never for one rank alone.
using FailureListener = std::function<void(const std::string& why, int missing_rank)>;
std::unique_ptr<World> make_gloo_world(const RankEnvironment& environment,
                                       std::chrono::milliseconds timeout,
                                       FailureListener tell = {});

}  // namespace vitrine

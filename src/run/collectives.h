// The communicators of one rank by lane, and the two collectives on units that a schedule asks for.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "comm/communicator.h"
#include "core/buffer.h"
#include "run/shard_store.h"
#include "schedule/action.h"

namespace vitrine {

// Bytes this rank gave to others, and elements, of one call: what the recorder notes.
struct CallTraffic {
  int64_t sent_bytes = 0, in_elements = 0, out_elements = 0;
};

class LaneCommunicators {
 public:
  // Makes the data group's communicators of the gather, reduce and compute lanes, one of all ranks
  // for control, and one a direction and neighbouring pair of stages. Collective over all ranks.
  // What calls hold is entered in `ledger`, which must outlive this.
  LaneCommunicators(World* world,
                    const Strategy& strategy,
                    const MeshPlace& place,
                    MemoryLedger& ledger);
  LaneCommunicators(const LaneCommunicators&) = delete;
  LaneCommunicators& operator=(const LaneCommunicators&) = delete;

  Communicator& data(LaneId lane);
  // Messages in the host's memory.
  Communicator& control() { return *control_; }
  // A step's sums, in the device's memory; the same as control() on the host.
  Communicator& totals() { return *totals_; }
  // With another stage's rank, in one direction.
  Communicator& pair(int peer, bool down);
  World* world() const { return world_; }
  bool alone() const { return world_ == nullptr || world_->size() == 1; }

  // Offers what the schedule's gathers and reductions touch to the peers' copy engines, where they
  // can use it. Collective; once, before the first step.
  void share(const ShardStore& store, const Schedule& schedule);
  bool shares() const { return !shared_.empty(); }

  // All-gathers the parameters of the units (one bucket) from every rank's piece into their full
  // buffers.
  CallTraffic gather_parameters(Communicator& comm,
                                ShardStore& store,
                                const std::vector<int>& units);
  // Reduce-scatters the full gradients of a reduction's units into this rank's pieces, then stage
  // 0: back to everyone; stages 2, 3: into the accumulated shard. What it works in is reserved
  // before and released after, with the full buffers of stages 2 and 3, by the compute lane.
  void reserve_reduction(const ShardStore& store, const Action& reserve);
  // Squares of sums that are final are added to `math` where the pass that sums can do it.
  CallTraffic reduce_gradients(Communicator& comm,
                               ShardStore& store,
                               StepMath& math,
                               const Action& reduce);
  void release_reduction(ShardStore& store, const Action& release);

 private:
  World* world_;
  MemoryLedger& ledger_;
  std::map<LaneId, std::shared_ptr<Communicator>> data_;
  std::shared_ptr<Communicator> control_, totals_;
  std::map<std::pair<int, bool>, std::shared_ptr<Communicator>> pairs_;
  std::vector<Buffer> windows_;
  std::vector<Communicator*> shared_;  // those that gather by units' indices

  // What one reduction works in: its units side by side, their sum, what comes from the peers.
  struct Room {
    Buffer bucket, sum, received;
  };
  Room& room_of(const Action& action);
  std::mutex mutex_;           // the map; its elements are ordered by the schedule
  std::map<int, Room> rooms_;  // by the first unit
};

}  // namespace vitrine

// Measurement of this machine, for `vitrine calibrate`: what CPU ranks of the engine do.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "core/dtype.h"
#include "machines/measured.h"

namespace vitrine {

// Every case of op_grid.h, forward and backward, and the passes of the optimizer ("adamw",
// "squares": of the gradient norm; "copy": of bytes in memory), on compute_threads() threads.
// With a world all its ranks measure the same at the same time, and each gets its own times.
class OperationTimes {
 public:
  // Rounds should lie well apart, so that what disturbs one of them does not decide.
  static constexpr int kRounds = 3;

  OperationTimes(DType dtype, bool quick, World* world);
  void round();  // collective over the world
  // After a round at least.
  MeasuredOperations result() const;

 private:
  DType dtype_;
  bool quick_;
  std::shared_ptr<Communicator> together_;
  MeasuredOperations result_;
  std::vector<std::vector<double>> times_;  // by row and round
};

// All kinds that the engine uses, by size; collective over the world, which has at least two ranks
// of one host (else ConfigError). As a step finds them: ranks come to a call after a
// millisecond of the same work, those who receive were asleep, large operands are in no cache.
// Every rank gets the same list: the median of the ranks' means, which is the transfer and what the
// last to come is late.
std::vector<MeasuredCollective> measure_collectives(World& world, bool quick);

// From a change under a lock to the thread that waits for it, as lanes hand work on: while the one
// that gives goes on computing, to one that has slept for a millisecond. The median.
double measure_handoff_ns();

struct DiskSpeed {
  double write_bytes_per_s = 0, read_bytes_per_s = 0;
};
// Writes (to the disk itself) and reads back (not from the page cache, where the system obeys) a
// file of `bytes` in `folder`, and removes it. Throws IoError.
DiskSpeed measure_disk(const std::string& folder, int64_t bytes);

// "AMD EPYC 9654" as the system names it; "processor" where it does not.
std::string processor_name();

// A profile for make_cluster: a card that stands for one rank's share of this machine, with the
// rates reached, and the measurements. JSON text.
std::string profile_text(const MeasuredMachine& machine);

}  // namespace vitrine

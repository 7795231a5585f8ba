// Which cluster computes which part of which tile of a product: whole tiles in waves, and a tail
// cut evenly along the contraction (stream-K: Osama et al., 2023). The same numbers on host and
// device.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define VITRINE_HOST_DEVICE __host__ __device__ inline
#else
#define VITRINE_HOST_DEVICE inline
#endif

namespace vitrine::gpu {

// Steps [begin, end) of the contraction of one tile. A part that begins at 0 owns its tile: it adds
// the parts that workers first_other, first_other + 1, ... left (as many as reach `steps`), and
// writes the result. Every other part is left for the owner.
struct TilePart {
  int row = 0, column = 0;  // of the tile, in tiles
  int begin = 0, end = 0;
};

struct TileSchedule {
  int rows = 0, columns = 0;  // tiles
  int steps = 0;              // of the contraction, at least 1
  int workers = 0;
  int whole = 0;      // tiles [0, whole) are computed by one worker each
  int tail_work = 0;  // steps of all other tiles together
  int band = 8;       // tiles are taken in bands of so many rows, column by column: neighbours in
                      // time share operands in the L2 cache

  // `split`: the last, partly filled wave (and one whole wave more where its tiles would be cut in
  // more than four) is shared by all workers. Otherwise every tile is whole.
  VITRINE_HOST_DEVICE static TileSchedule make(
      int rows, int columns, int steps, int workers, bool split) {
    TileSchedule s;
    s.rows = rows;
    s.columns = columns;
    s.steps = steps;
    s.workers = workers;
    const int tiles = rows * columns;
    int tail = split ? tiles % workers : 0;
    if (tail > 0 && 4 * tail < workers && tiles > workers) tail += workers;
    s.whole = tiles - tail;
    s.tail_work = tail * steps;
    return s;
  }

  // The tail's steps of worker w begin here; those of the last worker end at tail_begin(workers).
  VITRINE_HOST_DEVICE int tail_begin(int worker) const {
    return static_cast<int>(static_cast<int64_t>(tail_work) * worker / workers);
  }
  VITRINE_HOST_DEVICE TilePart place(int tile) const {
    const int in_band = band * columns, first = tile / in_band * band;
    const int height = rows - first < band ? rows - first : band;
    const int at = tile % in_band;
    return {first + at % height, at / height, 0, steps};
  }
};

// The parts of one worker, in order: for (Parts parts(schedule, w); parts.more(); parts.next()).
// An owner's parts in the tail come after everything that the workers above it leave for it.
class TileParts {
 public:
  VITRINE_HOST_DEVICE TileParts(const TileSchedule& schedule, int worker)
      : schedule_(schedule),
        tile_(worker),
        at_(schedule.tail_begin(worker)),
        end_(schedule.tail_begin(worker + 1)) {}
  VITRINE_HOST_DEVICE bool more() const { return tile_ < schedule_.whole || at_ < end_; }
  VITRINE_HOST_DEVICE TilePart part() const {
    if (tile_ < schedule_.whole) return schedule_.place(tile_);
    TilePart part = schedule_.place(schedule_.whole + at_ / schedule_.steps);
    part.begin = at_ % schedule_.steps;
    const int left = end_ - at_, to_end = schedule_.steps - part.begin;
    part.end = part.begin + (left < to_end ? left : to_end);
    return part;
  }
  VITRINE_HOST_DEVICE void next() {
    if (tile_ < schedule_.whole) {
      tile_ += schedule_.workers;
    } else {
      const TilePart done = part();
      at_ += done.end - done.begin;
    }
  }

 private:
  const TileSchedule& schedule_;
  int tile_;
  int at_, end_;  // of the tail's steps
};

}  // namespace vitrine::gpu

// The first of a lane's tracks that is free, in time that grows with the logarithm of their number.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace vitrine {

// A tree over the tracks' ends, each node the least of those below it.
class FreeTrack {
 public:
  // The first track that ends no later than `start`, or a new one; from now on it ends at `end`.
  size_t take(int64_t start, int64_t end) {
    if (tracks_ == width_ && (width_ == 0 || ends_[1] > start)) widen();
    size_t node = 1;
    while (node < width_) node = ends_[2 * node] <= start ? 2 * node : 2 * node + 1;
    const size_t track = node - width_;
    tracks_ = std::max(tracks_, track + 1);
    ends_[node] = end;
    for (node /= 2; node > 0; node /= 2)
      ends_[node] = std::min(ends_[2 * node], ends_[2 * node + 1]);
    return track;
  }
  size_t tracks() const { return tracks_; }

 private:
  // Tracks that are not there yet are free.
  void widen() {
    const std::vector<int64_t> before = std::move(ends_);
    const size_t old = width_;
    width_ = std::max<size_t>(1, 2 * old);
    ends_.assign(2 * width_, INT64_MIN);
    for (size_t i = 0; i < old; ++i) ends_[width_ + i] = before[old + i];
    for (size_t node = width_ - 1; node > 0; --node)
      ends_[node] = std::min(ends_[2 * node], ends_[2 * node + 1]);
  }

  size_t width_ = 0, tracks_ = 0;  // a power of two, and how many are used
  std::vector<int64_t> ends_;      // [1] is the root, [width_ ...] the tracks
};

}  // namespace vitrine

// How large the windows are in which GPUs of one host put their terms of each other's sums.
#pragma once

#include <algorithm>
#include <cstddef>

namespace vitrine {

constexpr size_t kMostPeerWindowBytes = size_t{256} << 20;

// Of a group of `ranks`, for reductions of up to `bytes` in all: two slots a rank, each for one
// rank's piece or as much of it as the limit allows.
constexpr size_t peer_window_bytes(size_t bytes, size_t ranks) {
  const size_t slots = 2 * ranks;
  const size_t wanted = (bytes / ranks + 1023) / 256 * 256;
  return std::min(wanted, kMostPeerWindowBytes / slots / 256 * 256) * slots;
}

}  // namespace vitrine

// Arguments of calls, checked alike by every transport.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace vitrine {

// All throw ShapeError beginning with `call`, e.g. "all_gather".
void check_bytes(const Communicator& communicator, const char* call, size_t expected, size_t got);
void check_peer(const Communicator& communicator, const char* call, int peer);
// Pieces of an uneven exchange: one count a rank, none negative, that add up to the buffer.
void check_counts(const Communicator& communicator,
                  const char* call,
                  std::span<const int64_t> counts,
                  size_t bytes);

// The place of `rank` in the group. Throws ConfigError unless `ranks` ascend within the world and
// have it.
int check_group(const std::string& name, const std::vector<int>& ranks, int rank, int world_size);

}  // namespace vitrine

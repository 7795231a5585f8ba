// Errors of wrong arguments: what was expected, what came.
#include "comm/call_checks.h"

#include <algorithm>
#include <functional>

#include "core/error.h"
#include "core/format.h"

namespace vitrine {

void check_bytes(const Communicator& communicator, const char* call, size_t expected, size_t got) {
  if (expected == got) return;
  throw ShapeError(format("%s: expected a buffer of %zu bytes, got %zu",
                          communicator.describe(call).c_str(),
                          expected,
                          got));
}

void check_peer(const Communicator& communicator, const char* call, int peer) {
  if (peer >= 0 && peer < communicator.size()) return;
  throw ShapeError(format("%s: rank %d is outside the group of %d",
                          communicator.describe(call).c_str(),
                          peer,
                          communicator.size()));
}

void check_counts(const Communicator& communicator,
                  const char* call,
                  std::span<const int64_t> counts,
                  size_t bytes) {
  if (counts.size() != static_cast<size_t>(communicator.size())) {
    throw ShapeError(format("%s: expected %d counts, got %zu",
                            communicator.describe(call).c_str(),
                            communicator.size(),
                            counts.size()));
  }
  size_t total = 0;
  for (const int64_t count : counts) {
    if (count < 0) {
      throw ShapeError(format("%s: a count is %lld",
                              communicator.describe(call).c_str(),
                              static_cast<long long>(count)));
    }
    total += static_cast<size_t>(count);
  }
  check_bytes(communicator, call, total, bytes);
}

int check_group(const std::string& name, const std::vector<int>& ranks, int rank, int world_size) {
  const auto at = std::find(ranks.begin(), ranks.end(), rank);
  const bool ascending =
      std::adjacent_find(ranks.begin(), ranks.end(), std::greater_equal()) == ranks.end();
  if (at == ranks.end() || !ascending || ranks.front() < 0 || ranks.back() >= world_size) {
    throw ConfigError("group '" + name + "': expected ascending ranks of 0.." +
                      std::to_string(world_size - 1) + " with rank " + std::to_string(rank) +
                      " among them");
  }
  return static_cast<int>(at - ranks.begin());
}

}  // namespace vitrine

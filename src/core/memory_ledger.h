// What holds memory: every allocation carries a category and the name of its holder (a block).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace vitrine {

class Device;
Device& host_device();  // core/device.h

enum class MemoryCategory : uint8_t {
  kParameters,
  kGradients,
  kOptimizer,
  kActivations,
  kGathered,       // full parameters held for use only (ZeRO-3)
  kCommunication,  // reduce buckets, send and receive buffers
  kWorkspace,
  kStaging,  // data loading, checkpoints
};
constexpr int kMemoryCategories = 8;
const char* memory_category_name(MemoryCategory category);

// Bytes by category at one moment.
using MemoryByCategory = std::array<int64_t, kMemoryCategories>;

// Thread-safe. One for each rank (several in one process when ranks are threads of a test).
class MemoryLedger {
 public:
  // Counts what lies on `device`, which must outlive it.
  explicit MemoryLedger(Device& device = host_device()) : device_(&device) {}
  Device& device() const { return *device_; }

  void add(MemoryCategory category, const std::string& holder, int64_t bytes);
  void remove(MemoryCategory category, const std::string& holder, int64_t bytes);

  int64_t current() const;
  int64_t current(MemoryCategory category) const;
  int64_t peak() const;  // of the sum
  int64_t peak(MemoryCategory category) const;
  MemoryByCategory by_category() const;
  MemoryByCategory at_peak() const;  // split of the moment when the sum was highest
  // (holder, bytes now) of one category, largest first.
  std::vector<std::pair<std::string, int64_t>> holders(MemoryCategory category) const;
  // A table of current and peak bytes by category, for messages.
  std::string table() const;
  void reset_peak();
  // Refuse allocations beyond this many bytes in total with OutOfMemory; 0 = no limit.
  void set_capacity(int64_t bytes);

 private:
  Device* device_;
  mutable std::mutex mutex_;
  MemoryByCategory current_{}, peak_{}, at_peak_{};
  int64_t total_ = 0, peak_total_ = 0, capacity_ = 0;
  std::array<std::map<std::string, int64_t>, kMemoryCategories> holders_;
};

}  // namespace vitrine

// Ledgered buffers over a small caching allocator.
#include "core/buffer.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "core/error.h"
#include "core/format.h"

namespace vitrine {
namespace {

// Freed blocks by rounded size. Rounding (1/8 of a power of two) keeps the number of sizes small.
class BlockCache {
 public:
  ~BlockCache() {
    for (auto& [size, blocks] : free_) {
      for (void* block : blocks) std::free(block);
    }
  }
  static size_t rounded(size_t bytes) {
    size_t step = 64;
    while (step * 8 < bytes) step *= 2;
    return (bytes + step - 1) / step * step;
  }
  void* take(size_t bytes) {
    const size_t size = rounded(bytes);
    {
      const std::lock_guard lock(mutex_);
      const auto it = free_.find(size);
      if (it != free_.end() && !it->second.empty()) {
        void* block = it->second.back();
        it->second.pop_back();
        return block;
      }
    }
    return std::aligned_alloc(64, size);
  }
  void give(void* block, size_t bytes) {
    const std::lock_guard lock(mutex_);
    free_[rounded(bytes)].push_back(block);
  }

 private:
  std::mutex mutex_;
  std::map<size_t, std::vector<void*>> free_;
};

BlockCache& cache() {
  static BlockCache* instance = new BlockCache;  // outlives every static buffer
  return *instance;
}

}  // namespace

Buffer::Buffer(
    MemoryLedger& ledger, MemoryCategory category, std::string holder, size_t bytes, bool zero)
    : bytes_(bytes), ledger_(&ledger), category_(category), holder_(std::move(holder)) {
  ledger.add(category, holder_, static_cast<int64_t>(bytes));
  data_ = cache().take(bytes == 0 ? 64 : bytes);
  if (!data_) {
    ledger.remove(category, holder_, static_cast<int64_t>(bytes));
    throw OutOfMemory("the system has no memory left: " + holder_ + " asks for " +
                      format_bytes(static_cast<double>(bytes)) + "\n" + ledger.table());
  }
  if (zero) std::memset(data_, 0, bytes);
}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this != &other) {
    reset();
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    ledger_ = std::exchange(other.ledger_, nullptr);
    category_ = other.category_;
    holder_ = std::move(other.holder_);
  }
  return *this;
}

void Buffer::reset() {
  if (!data_) return;
  cache().give(data_, bytes_ == 0 ? 64 : bytes_);
  ledger_->remove(category_, holder_, static_cast<int64_t>(bytes_));
  data_ = nullptr;
  bytes_ = 0;
}

}  // namespace vitrine

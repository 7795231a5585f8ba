// The host as a device.
#include "core/device.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

namespace vitrine {
namespace {

class HostDevice : public Device {
 public:
  const std::string& name() const override { return name_; }
  bool is_host() const override { return true; }

  void* allocate(size_t bytes) override {
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
    void* block = std::aligned_alloc(64, size);
    if (block) {
      const std::lock_guard lock(mutex_);
      reserved_ += size;
    }
    return block;
  }
  void release(void* block, size_t bytes) noexcept override {
    const std::lock_guard lock(mutex_);
    free_[rounded(bytes)].push_back(block);
  }
  size_t reserved_bytes() const override {
    const std::lock_guard lock(mutex_);
    return reserved_;
  }

  void zero(void* to, size_t bytes) override { std::memset(to, 0, bytes); }
  void copy(void* to, const void* from, size_t bytes) override { std::memcpy(to, from, bytes); }
  void upload(void* to, const void* host, size_t bytes) override { std::memcpy(to, host, bytes); }
  void download(void* host, const void* from, size_t bytes) override {
    std::memcpy(host, from, bytes);
  }
  void convert(DType to, void* destination, DType from, const void* source, int64_t n) override {
    if (to == from) {
      std::memcpy(destination, source, static_cast<size_t>(n) * dtype_bytes(to));
    } else {
      vitrine::convert(to, destination, from, source, n);
    }
  }
  void add(DType dtype, void* sum, const void* term, int64_t count) override {
    if (dtype == DType::kF32) {
      auto* to = static_cast<float*>(sum);
      const auto* from = static_cast<const float*>(term);
      for (int64_t i = 0; i < count; ++i) to[i] += from[i];
      return;
    }
    constexpr int64_t kTile = 512;  // no buffer of the whole that nobody counts
    float a[kTile], b[kTile];
    const size_t element = dtype_bytes(dtype);
    for (int64_t at = 0; at < count; at += kTile) {
      const int64_t n = std::min(kTile, count - at);
      auto* to = static_cast<std::byte*>(sum) + static_cast<size_t>(at) * element;
      const auto* from = static_cast<const std::byte*>(term) + static_cast<size_t>(at) * element;
      vitrine::convert(DType::kF32, a, dtype, to, n);
      vitrine::convert(DType::kF32, b, dtype, from, n);
      for (int64_t i = 0; i < n; ++i) a[i] += b[i];
      vitrine::convert(dtype, to, DType::kF32, a, n);
    }
  }

  void enter_lane(int) override {}
  void mark(int) override {}
  void wait(int) override {}
  void synchronize_lane() override {}
  void synchronize() override {}

 private:
  // By 1/8 of a power of two, which keeps the number of sizes small.
  static size_t rounded(size_t bytes) {
    size_t step = 64;
    while (step * 8 < bytes) step *= 2;
    return std::max<size_t>(64, (bytes + step - 1) / step * step);
  }

  std::string name_ = "host";
  mutable std::mutex mutex_;
  std::map<size_t, std::vector<void*>> free_;
  size_t reserved_ = 0;
};

}  // namespace

Device& host_device() {
  static auto* device = new HostDevice;  // outlives every static buffer
  return *device;
}

}  // namespace vitrine

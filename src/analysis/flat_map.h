// A hash table from 64-bit keys to 32-bit numbers, for joins of hundreds of thousands of spans.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace vitrine {

// Open addressing, at most half full; nothing is erased.
class FlatMap {
 public:
  static constexpr uint32_t kAbsent = UINT32_MAX;

  FlatMap() = default;
  explicit FlatMap(size_t count) {
    while (keys_.size() < 2 * (count + 1)) grow();
  }

  // The number of `key`, which is `value` when it was absent.
  uint32_t insert(uint64_t key, uint32_t value) {
    if (2 * (size_ + 1) > keys_.size()) grow();
    const size_t place = find_place(key);
    if (values_[place] == kAbsent) {
      keys_[place] = key, values_[place] = value;
      ++size_;
    }
    return values_[place];
  }
  uint32_t find(uint64_t key) const { return size_ == 0 ? kAbsent : values_[find_place(key)]; }

 private:
  size_t find_place(uint64_t key) const {
    const size_t mask = keys_.size() - 1;
    size_t place = static_cast<size_t>((key * 0x9E3779B97F4A7C15ull) >> 32) & mask;
    while (values_[place] != kAbsent && keys_[place] != key) place = (place + 1) & mask;
    return place;
  }
  void grow() {
    std::vector<uint64_t> keys(keys_.empty() ? 64 : 2 * keys_.size());
    std::vector<uint32_t> values(keys.size(), kAbsent);
    keys.swap(keys_), values.swap(values_);
    for (size_t i = 0; i < keys.size(); ++i) {
      if (values[i] == kAbsent) continue;
      const size_t place = find_place(keys[i]);
      keys_[place] = keys[i], values_[place] = values[i];
    }
  }

  std::vector<uint64_t> keys_;
  std::vector<uint32_t> values_;
  size_t size_ = 0;
};

}  // namespace vitrine

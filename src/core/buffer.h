// Owned memory that is entered in a ledger for as long as it lives; freed blocks are reused.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "core/memory_ledger.h"

namespace vitrine {

// On the ledger's device; at least 64-byte aligned, not initialised unless asked. Movable. The
// ledger counts the bytes asked for; the device keeps freed blocks for the next.
class Buffer {
 public:
  Buffer() = default;
  Buffer(MemoryLedger& ledger,
         MemoryCategory category,
         std::string holder,
         size_t bytes,
         bool zero = false);
  ~Buffer() { reset(); }
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  explicit operator bool() const { return data_ != nullptr; }
  void reset();

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
  MemoryLedger* ledger_ = nullptr;
  MemoryCategory category_{};
  std::string holder_;
};

}  // namespace vitrine

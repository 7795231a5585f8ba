// Ledgered buffers on the ledger's device.
#include "core/buffer.h"

#include "core/device.h"
#include "core/error.h"
#include "core/format.h"

namespace vitrine {
Buffer::Buffer(
    MemoryLedger& ledger, MemoryCategory category, std::string holder, size_t bytes, bool zero)
    : bytes_(bytes), ledger_(&ledger), category_(category), holder_(std::move(holder)) {
  ledger.add(category, holder_, static_cast<int64_t>(bytes));
  data_ = ledger.device().allocate(bytes == 0 ? 64 : bytes);
  if (!data_) {
    ledger.remove(category, holder_, static_cast<int64_t>(bytes));
    throw OutOfMemory(ledger.device().name() + " has no memory left: " + holder_ + " asks for " +
                      format_bytes(static_cast<double>(bytes)) + "\n" + ledger.table());
  }
  if (zero) ledger.device().zero(data_, bytes);
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
  ledger_->device().release(data_, bytes_ == 0 ? 64 : bytes_);
  ledger_->remove(category_, holder_, static_cast<int64_t>(bytes_));
  data_ = nullptr;
  bytes_ = 0;
}

}  // namespace vitrine

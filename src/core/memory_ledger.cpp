// The memory ledger.
#include "core/memory_ledger.h"

#include <algorithm>

#include "core/device.h"
#include "core/error.h"
#include "core/format.h"

namespace vitrine {
namespace {
size_t index(MemoryCategory category) { return static_cast<size_t>(category); }
}  // namespace

const char* memory_category_name(MemoryCategory category) {
  static const char* const names[kMemoryCategories] = {"parameters",
                                                       "gradients",
                                                       "optimizer",
                                                       "activations",
                                                       "gathered",
                                                       "communication",
                                                       "workspace",
                                                       "staging"};
  return names[index(category)];
}

void MemoryLedger::add(MemoryCategory category, const std::string& holder, int64_t bytes) {
  if (bytes == 0) return;
  std::unique_lock lock(mutex_);
  if (capacity_ > 0 && total_ + bytes > capacity_) {
    const int64_t total = total_;
    lock.unlock();
    throw OutOfMemory("out of memory on " + device_->name() + ": " + holder + " asks for " +
                      format_bytes(static_cast<double>(bytes)) + " of " +
                      memory_category_name(category) + " with " +
                      format_bytes(static_cast<double>(total)) + " of " +
                      format_bytes(static_cast<double>(capacity_)) + " in use\n" + table());
  }
  total_ += bytes;
  current_[index(category)] += bytes;
  holders_[index(category)][holder] += bytes;
  peak_[index(category)] = std::max(peak_[index(category)], current_[index(category)]);
  if (total_ > peak_total_) {
    peak_total_ = total_;
    at_peak_ = current_;
  }
}

void MemoryLedger::remove(MemoryCategory category, const std::string& holder, int64_t bytes) {
  if (bytes == 0) return;
  const std::lock_guard lock(mutex_);
  total_ -= bytes;
  current_[index(category)] -= bytes;
  auto& held = holders_[index(category)];
  const auto it = held.find(holder);
  VITRINE_ASSERT(it != held.end() && it->second >= bytes);
  it->second -= bytes;
  if (it->second == 0) held.erase(it);
}

int64_t MemoryLedger::current() const {
  const std::lock_guard lock(mutex_);
  return total_;
}
int64_t MemoryLedger::current(MemoryCategory category) const {
  const std::lock_guard lock(mutex_);
  return current_[index(category)];
}
int64_t MemoryLedger::peak() const {
  const std::lock_guard lock(mutex_);
  return peak_total_;
}
int64_t MemoryLedger::peak(MemoryCategory category) const {
  const std::lock_guard lock(mutex_);
  return peak_[index(category)];
}
MemoryByCategory MemoryLedger::by_category() const {
  const std::lock_guard lock(mutex_);
  return current_;
}
MemoryByCategory MemoryLedger::at_peak() const {
  const std::lock_guard lock(mutex_);
  return at_peak_;
}

std::vector<std::pair<std::string, int64_t>> MemoryLedger::holders(MemoryCategory category) const {
  const std::lock_guard lock(mutex_);
  const auto& held = holders_[index(category)];
  std::vector<std::pair<std::string, int64_t>> rows(held.begin(), held.end());
  std::stable_sort(rows.begin(), rows.end(), [](auto& a, auto& b) { return a.second > b.second; });
  return rows;
}

std::string MemoryLedger::table() const {
  const std::lock_guard lock(mutex_);
  std::string text = "  category            now        peak\n";
  for (size_t i = 0; i < kMemoryCategories; ++i) {
    if (peak_[i] == 0) continue;
    text += format("  %-14s %10s  %10s\n",
                   memory_category_name(static_cast<MemoryCategory>(i)),
                   format_bytes(static_cast<double>(current_[i])).c_str(),
                   format_bytes(static_cast<double>(peak_[i])).c_str());
  }
  text += format("  %-14s %10s  %10s",
                 "all",
                 format_bytes(static_cast<double>(total_)).c_str(),
                 format_bytes(static_cast<double>(peak_total_)).c_str());
  return text;
}

void MemoryLedger::reset_peak() {
  const std::lock_guard lock(mutex_);
  peak_ = current_;
  at_peak_ = current_;
  peak_total_ = total_;
}

void MemoryLedger::set_capacity(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  capacity_ = bytes;
}

}  // namespace vitrine

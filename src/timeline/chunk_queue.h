// An unbounded queue of plain records from one writing thread to one reading thread, without locks.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstring>
#include <type_traits>

namespace vitrine {

// push() belongs to one thread, drain() to one other (or to several in turn); both may run at once.
template <typename T>
class ChunkQueue {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  static constexpr size_t kChunkItems = 1024;

  ChunkQueue() = default;
  ChunkQueue(const ChunkQueue&) = delete;
  ChunkQueue& operator=(const ChunkQueue&) = delete;
  ~ChunkQueue() {
    for (Chunk* chunk : {first_.load(), spares_}) {
      while (chunk != nullptr) {
        Chunk* next = chunk->next.load();
        delete chunk;
        chunk = next;
      }
    }
  }

  // `may_grow(bytes)` is asked before a chunk is allocated; when it says no the item is dropped and
  // push returns false.
  template <typename MayGrow>
  bool push(const T& item, MayGrow&& may_grow) {
    if (last_ == nullptr || used_ == kChunkItems) {
      if (spares_ == nullptr && !may_grow(sizeof(Chunk))) return false;
      grow();
    }
    std::memcpy(last_->bytes + used_ * sizeof(T), &item, sizeof(T));
    ++used_;
    last_->size.store(used_, std::memory_order_release);
    return true;
  }

  // Makes `count` chunks ready and touches their pages: fresh pages cost far more than the spans in
  // them.
  void warm_up(size_t count) {
    while (spare_count_ < count) {
      Chunk* chunk = new Chunk;
      std::memset(chunk->bytes, 0, sizeof(chunk->bytes));
      chunk->next.store(spares_, std::memory_order_relaxed);
      spares_ = chunk;
      ++spare_count_;
    }
  }
  static constexpr size_t chunk_bytes() { return sizeof(Chunk); }

  // Calls visit(item) for every item pushed and not yet drained; returns the bytes of freed chunks.
  template <typename Visit>
  size_t drain(Visit&& visit) {
    size_t freed = 0;
    if (reading_ == nullptr) reading_ = first_.load(std::memory_order_acquire);
    while (reading_ != nullptr) {
      const size_t size = reading_->size.load(std::memory_order_acquire);
      for (; read_ < size; ++read_) {
        T item;
        std::memcpy(&item, reading_->bytes + read_ * sizeof(T), sizeof(T));
        visit(item);
      }
      Chunk* next = reading_->next.load(std::memory_order_acquire);
      if (size < kChunkItems || next == nullptr) break;
      first_.store(next, std::memory_order_relaxed);
      delete reading_;
      freed += sizeof(Chunk);
      reading_ = next;
      read_ = 0;
    }
    return freed;
  }

 private:
  struct Chunk {
    std::atomic<Chunk*> next{nullptr};
    std::atomic<size_t> size{0};
    alignas(T) unsigned char bytes[kChunkItems * sizeof(T)];
  };

  void grow() {
    Chunk* chunk = spares_ != nullptr ? spares_ : new Chunk;
    if (spares_ != nullptr) {
      spares_ = chunk->next.load(std::memory_order_relaxed);
      chunk->next.store(nullptr, std::memory_order_relaxed);
      --spare_count_;
    }
    if (last_ == nullptr) {
      first_.store(chunk, std::memory_order_release);
    } else {
      last_->next.store(chunk, std::memory_order_release);
    }
    last_ = chunk;
    used_ = 0;
  }

  std::atomic<Chunk*> first_{nullptr};
  Chunk* last_ = nullptr;  // writer's
  size_t used_ = 0;
  Chunk* spares_ = nullptr;
  size_t spare_count_ = 0;
  alignas(64) Chunk* reading_ = nullptr;  // reader's
  size_t read_ = 0;
};

}  // namespace vitrine

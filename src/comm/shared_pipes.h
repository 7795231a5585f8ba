// Bytes between ranks of one host, through memory that all of them map.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace vitrine {

// One pipe from every rank of a group to every other: bytes come out in the order in which they
// were put in. Each rank calls from one thread at a time; wake() from any.
class SharedPipes {
 public:
  // The group's keys in the store that its ranks share.
  struct Store {
    std::function<void(const std::string& key, const std::string& value)> set;
    std::function<std::string(const std::string& key)> get;  // waits for the key
  };
  // Collective over the group. Null on every rank where they can't map each other's memory (other
  // hosts, containers that hide each other's processes), or VITRINE_SHARED_MEMORY=0 on one of them.
  // Throws what the store throws.
  static std::unique_ptr<SharedPipes> make(const Store& store, int rank, int size);
  ~SharedPipes();
  SharedPipes(const SharedPipes&) = delete;
  SharedPipes& operator=(const SharedPipes&) = delete;

  // A message to, or from, one peer; both ends name the same `slot`.
  struct Message {
    int peer;
    std::byte* data;
    size_t bytes;
    uint64_t slot;
    bool until_taken = false;  // a sent one counts as done when the receiver has it
    size_t moved = 0;          // with what goes before it
    bool done = false;
  };
  // Moves all messages at once, as bytes come and room is made; true when all are done, false at
  // the deadline and when `stopped` says so, which is asked after wake(). Throws CommError when a
  // peer brings another slot or size.
  bool move(std::span<Message> sends,
            std::span<Message> receives,
            std::chrono::steady_clock::time_point deadline,
            const std::function<bool()>& stopped);
  void wake() { ring(rank_); }

 private:
  struct Bell;
  struct Ends;
  struct Layout;

  SharedPipes(int rank, int size, size_t pipe_bytes);
  bool map(int file);
  Bell& bell(int rank) const;
  Ends& ends(int from, int to) const;
  std::byte* data(int from, int to) const;
  // Each moves what fits, or what is there, but not more than a part of the pipe, so that both ends
  // work at once; returns how many bytes that was.
  size_t put(int to, std::span<const std::byte> bytes);
  size_t take(int from, std::span<std::byte> bytes);
  size_t room(int to) const;
  size_t waiting(int from) const;
  // True when something was moved.
  bool send_some(Message& message);
  bool receive_some(Message& message);
  // Whether the receivers of what is not done are to ring when they take something.
  void want_room(std::span<const Message> sends, bool wanted);
  void ring(int peer);
  // Until another ring than the first `seen`, or the deadline.
  void sleep(uint32_t seen, std::chrono::steady_clock::time_point deadline);

  const int rank_, size_;
  const size_t pipe_bytes_;  // a power of two
  std::byte* memory_ = nullptr;
};

}  // namespace vitrine

// Layout: a page with the name of the memory, a bell a rank, then the ends and the bytes of every
// pipe. The memory is an anonymous file, which no name in a file system and no size of /dev/shm
// limits, and which goes with the last of its processes; the others open it through /proc.
#include "comm/shared_pipes.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <sstream>

#include "core/error.h"
#include "core/format.h"

namespace vitrine {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kMostPipe = size_t{1} << 20, kLeastPipe = size_t{64} << 10;
constexpr size_t kMostMemory = size_t{16} << 20;  // of a group of not too many ranks
constexpr size_t kPart = 4;                       // of a pipe that is moved at once
constexpr size_t kLine = 64;                      // bytes that two processors don't write at once

class File {
 public:
  explicit File(int number) : number_(number) {}
  ~File() {
    if (number_ >= 0) close(number_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int get() const { return number_; }

 private:
  const int number_;
};

// Where numbers of processes mean the same.
std::string process_space() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::array<char, 64> space{};
  if (readlink("/proc/self/ns/pid", space.data(), space.size() - 1) < 0) return "";
  return boot + space.data();
}

size_t pipe_bytes_of(int size) {
  const auto pipes = static_cast<size_t>(size) * static_cast<size_t>(size - 1);
  size_t bytes = kMostPipe;
  while (bytes > kLeastPipe && bytes * pipes > kMostMemory) bytes /= 2;
  return bytes;
}

// What goes before the bytes of a message.
struct Head {
  uint64_t slot, bytes;
};

bool wanted() {
  const char* choice = std::getenv("VITRINE_SHARED_MEMORY");
  return choice == nullptr || std::string(choice) != "0";
}

}  // namespace

struct alignas(kLine) SharedPipes::Bell {
  std::atomic<uint32_t> rings{0};
  std::atomic<uint32_t> asleep{0};
};

// Bytes since the beginning; each side writes its own.
struct SharedPipes::Ends {
  alignas(kLine) std::atomic<uint64_t> put{0};
  std::atomic<uint32_t> room_wanted{0};
  alignas(kLine) std::atomic<uint64_t> taken{0};
};

struct SharedPipes::Layout {
  static constexpr size_t kName = 32;
  static size_t bells() { return kPage; }
  static size_t ends(int size) { return bells() + static_cast<size_t>(size) * sizeof(Bell); }
  static size_t data(int size) {
    const size_t end =
        ends(size) + static_cast<size_t>(size) * static_cast<size_t>(size) * sizeof(Ends);
    return (end + kPage - 1) / kPage * kPage;
  }
  static size_t bytes(int size, size_t pipe) {
    return data(size) + static_cast<size_t>(size) * static_cast<size_t>(size - 1) * pipe;
  }
};

SharedPipes::SharedPipes(int rank, int size, size_t pipe_bytes)
    : rank_(rank), size_(size), pipe_bytes_(pipe_bytes) {}

SharedPipes::~SharedPipes() {
  if (memory_ != nullptr) munmap(memory_, Layout::bytes(size_, pipe_bytes_));
}

// A file of zeros is a valid beginning: nothing was put in, nobody sleeps.
bool SharedPipes::map(int file) {
  static_assert(std::atomic<uint64_t>::is_always_lock_free);
  const size_t bytes = Layout::bytes(size_, pipe_bytes_);
  struct stat status {};
  if (fstat(file, &status) != 0 || static_cast<size_t>(status.st_size) != bytes) return false;
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (at == MAP_FAILED) return false;
  memory_ = static_cast<std::byte*>(at);
  return true;
}

std::unique_ptr<SharedPipes> SharedPipes::make(const Store& store, int rank, int size) {
  std::unique_ptr<SharedPipes> pipes(new SharedPipes(rank, size, pipe_bytes_of(size)));
  bool good = wanted();
  const std::string space = process_space();
  File own(rank == 0 && good ? memfd_create("vitrine", MFD_CLOEXEC) : -1);
  if (rank == 0) {
    const auto bytes = static_cast<off_t>(Layout::bytes(size, pipes->pipe_bytes_));
    good = good && own.get() >= 0 && ftruncate(own.get(), bytes) == 0 && pipes->map(own.get());
    std::random_device random;
    const std::string name = format("%08x%08x%08x", random(), random(), random());
    if (good) std::memcpy(pipes->memory_, name.data(), name.size());
    store.set(
        "memory",
        good ? format("%d %d %s %s", getpid(), own.get(), name.c_str(), space.c_str()) : "none");
  } else {
    int process = 0, number = 0;
    std::string name, its_space;
    std::istringstream offer(store.get("memory"));
    good = good && offer >> process >> number >> name >> its_space && its_space == space &&
           !space.empty() && name.size() < Layout::kName;
    if (good) {
      const File file(
          open(format("/proc/%d/fd/%d", process, number).c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
      good = file.get() >= 0 && pipes->map(file.get()) &&
             std::memcmp(pipes->memory_, name.data(), name.size()) == 0;
    }
  }
  store.set("mapped/" + std::to_string(rank), good ? "yes" : "no");
  for (int r = 0; r < size; ++r) good = store.get("mapped/" + std::to_string(r)) == "yes" && good;
  return good ? std::move(pipes) : nullptr;
}

SharedPipes::Bell& SharedPipes::bell(int rank) const {
  return *reinterpret_cast<Bell*>(memory_ + Layout::bells() +
                                  static_cast<size_t>(rank) * sizeof(Bell));
}

SharedPipes::Ends& SharedPipes::ends(int from, int to) const {
  const auto index =
      static_cast<size_t>(from) * static_cast<size_t>(size_) + static_cast<size_t>(to);
  return *reinterpret_cast<Ends*>(memory_ + Layout::ends(size_) + index * sizeof(Ends));
}

std::byte* SharedPipes::data(int from, int to) const {
  const size_t index = static_cast<size_t>(from) * static_cast<size_t>(size_ - 1) +
                       static_cast<size_t>(to < from ? to : to - 1);
  return memory_ + Layout::data(size_) + index * pipe_bytes_;
}

size_t SharedPipes::room(int to) const {
  const Ends& pipe = ends(rank_, to);
  return pipe_bytes_ - (pipe.put.load(std::memory_order_relaxed) - pipe.taken.load());
}

size_t SharedPipes::waiting(int from) const {
  const Ends& pipe = ends(from, rank_);
  return pipe.put.load(std::memory_order_acquire) - pipe.taken.load(std::memory_order_relaxed);
}

size_t SharedPipes::put(int to, std::span<const std::byte> bytes) {
  Ends& pipe = ends(rank_, to);
  const size_t count = std::min({bytes.size(), room(to), pipe_bytes_ / kPart});
  if (count == 0) return 0;
  const uint64_t put = pipe.put.load(std::memory_order_relaxed);
  const size_t at = put & (pipe_bytes_ - 1), first = std::min(count, pipe_bytes_ - at);
  std::memcpy(data(rank_, to) + at, bytes.data(), first);
  if (count > first) std::memcpy(data(rank_, to), bytes.data() + first, count - first);
  pipe.put.store(put + count, std::memory_order_release);
  return count;
}

size_t SharedPipes::take(int from, std::span<std::byte> bytes) {
  Ends& pipe = ends(from, rank_);
  const size_t count = std::min({bytes.size(), waiting(from), pipe_bytes_ / kPart});
  if (count == 0) return 0;
  const uint64_t taken = pipe.taken.load(std::memory_order_relaxed);
  const size_t at = taken & (pipe_bytes_ - 1), first = std::min(count, pipe_bytes_ - at);
  std::memcpy(bytes.data(), data(from, rank_) + at, first);
  if (count > first) std::memcpy(bytes.data() + first, data(from, rank_), count - first);
  pipe.taken.store(taken + count);
  if (pipe.room_wanted.load() != 0) ring(from);
  return count;
}

bool SharedPipes::send_some(Message& message) {
  const size_t before = message.moved;
  if (message.moved == 0) {
    if (room(message.peer) < sizeof(Head)) return false;
    const Head head{message.slot, message.bytes};
    message.moved = put(message.peer, std::as_bytes(std::span(&head, 1)));
  }
  const size_t at = message.moved - sizeof(Head);
  const size_t count = put(message.peer, {message.data + at, message.bytes - at});
  message.moved += count;
  if (message.moved > before) ring(message.peer);
  message.done =
      at + count == message.bytes && (!message.until_taken || room(message.peer) == pipe_bytes_);
  return message.moved > before || message.done;
}

bool SharedPipes::receive_some(Message& message) {
  const size_t before = message.moved;
  if (message.moved == 0) {
    if (waiting(message.peer) < sizeof(Head)) return false;
    Head head{};
    message.moved = take(message.peer, std::as_writable_bytes(std::span(&head, 1)));
    if (head.slot != message.slot || head.bytes != message.bytes) {
      throw CommError(
          format("rank %d of the group brings %llu bytes of another call or size, here "
                 "%zu are expected; every rank must issue the same calls in the same "
                 "order",
                 message.peer,
                 static_cast<unsigned long long>(head.bytes),
                 message.bytes));
    }
  }
  const size_t at = message.moved - sizeof(Head);
  const size_t count = take(message.peer, {message.data + at, message.bytes - at});
  message.moved += count;
  message.done = at + count == message.bytes;
  return message.moved > before;
}

void SharedPipes::want_room(std::span<const Message> sends, bool wanted) {
  for (const Message& m : sends)
    if (!wanted || !m.done) ends(rank_, m.peer).room_wanted.store(wanted ? 1 : 0);
}

bool SharedPipes::move(std::span<Message> sends,
                       std::span<Message> receives,
                       std::chrono::steady_clock::time_point deadline,
                       const std::function<bool()>& stopped) {
  bool asked = false;  // for rings when there is room: what came before that must be looked for
  for (;;) {
    const uint32_t seen = bell(rank_).rings.load();
    bool moved = false, all = true;
    for (Message& m : receives) {
      moved = (!m.done && receive_some(m)) || moved;
      all = all && m.done;
    }
    for (Message& m : sends) {
      moved = (!m.done && send_some(m)) || moved;
      all = all && m.done;
    }
    if (all) break;
    if (moved) continue;
    if (!asked) {
      asked = true;
      want_room(sends, true);
      continue;
    }
    if (stopped() || std::chrono::steady_clock::now() >= deadline) return false;
    sleep(seen, deadline);
  }
  if (asked) want_room(sends, false);
  return true;
}

void SharedPipes::ring(int peer) {
  Bell& its = bell(peer);
  its.rings.fetch_add(1);
  if (its.asleep.load() != 0) syscall(SYS_futex, &its.rings, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

void SharedPipes::sleep(uint32_t seen, std::chrono::steady_clock::time_point deadline) {
  using std::chrono::nanoseconds;
  const nanoseconds left = deadline - std::chrono::steady_clock::now();
  if (left <= nanoseconds(0)) return;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
  const timespec time{seconds.count(), (left - seconds).count()};
  Bell& own = bell(rank_);
  own.asleep.store(1);
  syscall(SYS_futex, &own.rings, FUTEX_WAIT, seen, &time, nullptr, 0);
  own.asleep.store(0);
}

}  // namespace vitrine

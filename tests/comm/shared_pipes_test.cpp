// Pipes between two threads that stand for the processes of two ranks.
#include "comm/shared_pipes.h"

#include <gtest/gtest.h>

#include <array>
#include <condition_variable>
#include <cstdlib>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "core/error.h"

namespace vitrine {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

using Message = SharedPipes::Message;
using Bytes = std::vector<std::byte>;

constexpr size_t kPipe = size_t{1} << 20;  // of two ranks

class Keys {
 public:
  SharedPipes::Store store() {
    return {[this](const std::string& key, const std::string& value) {
              const std::lock_guard lock(mutex_);
              values_[key] = value;
              changed_.notify_all();
            },
            [this](const std::string& key) {
              std::unique_lock lock(mutex_);
              changed_.wait(lock, [&] { return values_.contains(key); });
              return values_[key];
            }};
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

std::array<std::unique_ptr<SharedPipes>, 2> both_ends() {
  Keys keys;
  std::array<std::unique_ptr<SharedPipes>, 2> ends;
  std::thread other([&] { ends[1] = SharedPipes::make(keys.store(), 1, 2); });
  ends[0] = SharedPipes::make(keys.store(), 0, 2);
  other.join();
  return ends;
}

steady_clock::time_point in(milliseconds time) { return steady_clock::now() + time; }
bool never() { return false; }

Bytes noise(size_t bytes, unsigned seed) {
  std::mt19937 random(seed);
  Bytes made(bytes);
  for (std::byte& b : made) b = static_cast<std::byte>(random());
  return made;
}

bool send(SharedPipes& pipes, int to, Bytes& bytes, milliseconds patience, bool taken = false) {
  std::array<Message, 1> message{Message{to, bytes.data(), bytes.size(), 7, taken}};
  return pipes.move(message, {}, in(patience), never);
}
bool receive(SharedPipes& pipes, int from, Bytes& bytes, milliseconds patience) {
  std::array<Message, 1> message{Message{from, bytes.data(), bytes.size(), 7}};
  return pipes.move({}, message, in(patience), never);
}

TEST(SharedPipes, BytesComeOutAsTheyWentInWhateverTheirSize) {
  const auto ends = both_ends();
  ASSERT_TRUE(ends[0] && ends[1]);
  const std::vector<size_t> sizes = {0, 1, 15, kPipe - 17, kPipe, 5 * kPipe + 3, 1000, kPipe + 1};
  const auto exchange = [&](size_t me) {
    for (size_t i = 0; i < sizes.size(); ++i) {
      const auto seed = static_cast<unsigned>(2 * i);
      Bytes mine = noise(sizes[i], seed + static_cast<unsigned>(me)), its(sizes[i]);
      std::array<Message, 1> to{Message{static_cast<int>(1 - me), mine.data(), mine.size(), i}};
      std::array<Message, 1> from{Message{static_cast<int>(1 - me), its.data(), its.size(), i}};
      ASSERT_TRUE(ends[me]->move(to, from, in(milliseconds(20000)), never)) << sizes[i];
      EXPECT_EQ(its, noise(sizes[i], seed + static_cast<unsigned>(1 - me))) << sizes[i];
    }
  };
  std::thread other(exchange, 1);
  exchange(0);
  other.join();
}

TEST(SharedPipes, ASentMessageIsDoneWhenItIsInOrWhenItIsTaken) {
  const auto ends = both_ends();
  ASSERT_TRUE(ends[0] && ends[1]);
  Bytes bytes = noise(1000, 1), out(1000), large(2 * kPipe);
  EXPECT_TRUE(send(*ends[0], 1, bytes, milliseconds(20000)));
  EXPECT_FALSE(send(*ends[0], 1, bytes, milliseconds(50), true));
  EXPECT_TRUE(receive(*ends[1], 0, out, milliseconds(20000)));
  EXPECT_EQ(out, bytes);
  EXPECT_FALSE(send(*ends[1], 0, large, milliseconds(50)));  // does not fit, and nobody takes it
}

TEST(SharedPipes, ReturnWhenStoppedBeforeTheDeadline) {
  const auto ends = both_ends();
  ASSERT_TRUE(ends[0] && ends[1]);
  std::atomic<bool> stop{false};
  Bytes bytes(10);
  std::array<Message, 1> message{Message{1, bytes.data(), bytes.size(), 7}};
  std::thread other([&] {
    std::this_thread::sleep_for(milliseconds(50));
    stop = true;
    ends[0]->wake();
  });
  const auto start = steady_clock::now();
  EXPECT_FALSE(ends[0]->move({}, message, in(milliseconds(60000)), [&] { return stop.load(); }));
  EXPECT_LT(steady_clock::now() - start, milliseconds(30000));
  other.join();
}

TEST(SharedPipes, RefuseAMessageOfAnotherSizeOrCall) {
  for (const auto& [slot, size] : {std::pair<uint64_t, size_t>{7, 8}, {8, 10}}) {
    const auto ends = both_ends();
    ASSERT_TRUE(ends[0] && ends[1]);
    Bytes bytes(10), out(size);
    EXPECT_TRUE(send(*ends[1], 0, bytes, milliseconds(20000)));
    std::array<Message, 1> message{Message{1, out.data(), out.size(), slot}};
    try {
      ends[0]->move({}, message, in(milliseconds(20000)), never);
      ADD_FAILURE() << "taken for slot " << slot << " and " << size << " bytes";
    } catch (const CommError& error) {
      EXPECT_NE(std::string(error.what()).find("rank 1 of the group brings 10 bytes"),
                std::string::npos)
          << error.what();
    }
  }
}

TEST(SharedPipes, AreNotMadeWhereTheyAreNotWanted) {
  setenv("VITRINE_SHARED_MEMORY", "0", 1);
  const auto ends = both_ends();
  unsetenv("VITRINE_SHARED_MEMORY");
  EXPECT_FALSE(ends[0] || ends[1]);
}

}  // namespace
}  // namespace vitrine

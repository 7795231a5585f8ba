// The store by itself: values, waiting, and what it says when things go wrong.
#include "comm/tcp_store.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "core/error.h"

namespace vitrine {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kTimeout{10000};

struct Store {
  TcpStoreServer server{"127.0.0.1", 0, 3};
  std::unique_ptr<TcpStoreClient> client(int rank, bool control = false) {
    return std::make_unique<TcpStoreClient>("127.0.0.1", server.port(), rank, 3, control, kTimeout);
  }
};

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const CommError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(TcpStore, AGetWaitsUntilSomeoneSetsTheKey) {
  Store store;
  auto a = store.client(0), b = store.client(1);
  std::string got;
  std::thread waiting([&] { got = b->get("address", kTimeout); });
  std::this_thread::sleep_for(milliseconds(30));
  const std::string value("bytes\0of any: kind", 18);
  a->set("address", value);
  waiting.join();
  EXPECT_EQ(got, value);
  EXPECT_EQ(a->add("count", 2), 2);
  EXPECT_EQ(b->add("count", -5), -3);
}

TEST(TcpStore, ALargeValueArrivesWhole) {
  Store store;
  const std::string value(3'000'000, 'x');
  store.client(0)->set("large", value);
  EXPECT_EQ(store.client(1)->get("large", kTimeout), value);
}

TEST(TcpStore, AMissingKeyIsNamedAfterTheTimeout) {
  Store store;
  const std::string error =
      message_of([&] { store.client(0)->get("group/gather/1", milliseconds(100)); });
  EXPECT_TRUE(contains(error, "did not answer get 'group/gather/1' within 100")) << error;
}

TEST(TcpStore, ACancelledGetEnds) {
  Store store;
  auto client = store.client(0);
  std::thread cancelling([&] {
    std::this_thread::sleep_for(milliseconds(50));
    client->cancel();
  });
  const std::string error = message_of([&] { client->get("never", kTimeout); });
  cancelling.join();
  EXPECT_TRUE(contains(error, "given up")) << error;
}

TEST(TcpStore, ATakenPortIsSaidWithAdvice) {
  Store store;
  const std::string error =
      message_of([&] { TcpStoreServer second("127.0.0.1", store.server.port(), 3); });
  EXPECT_TRUE(contains(error, "127.0.0.1:" + std::to_string(store.server.port()))) << error;
  EXPECT_TRUE(contains(error, "choose another MASTER_PORT")) << error;
}

TEST(TcpStore, AnUnreachableStoreIsSaidWithItsAddress) {
  const int port = free_port();
  const std::string error =
      message_of([&] { TcpStoreClient client("127.0.0.1", port, 2, 3, false, milliseconds(100)); });
  EXPECT_TRUE(
      contains(error, "rank 2 could not reach rank 0's store at 127.0.0.1:" + std::to_string(port)))
      << error;
  EXPECT_TRUE(contains(error, "check that rank 0 runs")) << error;
}

TEST(TcpStore, RefusesWrongWorldSizesAndTwoProcessesOfOneRank) {
  Store store;
  const std::string size = message_of(
      [&] { TcpStoreClient client("127.0.0.1", store.server.port(), 1, 4, false, kTimeout); });
  EXPECT_TRUE(contains(size, "expects 3 ranks, this one says it is rank 1 of 4")) << size;
  auto first = store.client(1, true);
  const std::string twice = message_of([&] { store.client(1, true); });
  EXPECT_TRUE(contains(twice, "rank 1 is already there")) << twice;
}

TEST(TcpStore, SurvivesStrangersOnItsPort) {
  Store store;
  const Deadline deadline = std::chrono::steady_clock::now() + kTimeout;
  for (const std::string& noise : {std::string("GET / HTTP/1.1\r\n\r\n"),
                                   std::string(100, '\xff'),
                                   std::string("\3\0\0\0abc", 7),
                                   std::string("\4\0\0\0"
                                               "1:ax",
                                               8)}) {
    Socket stranger = connect_to("127.0.0.1", store.server.port(), deadline);
    ASSERT_EQ(send(stranger.fd(), noise.data(), noise.size(), 0),
              static_cast<ssize_t>(noise.size()));
    MessageBuffer answer;
    ASSERT_TRUE(wait_readable(stranger, deadline));
    EXPECT_FALSE(answer.fill(stranger));  // the store hangs up
  }
  auto client = store.client(0);
  client->set("key", "value");
  EXPECT_EQ(client->get("key", kTimeout), "value");
}

TEST(TcpStore, TellsARankThatComesLateWhoHasAborted) {
  Store store;
  auto first = store.client(0, true);
  first->report_aborted("no data");
  const auto deadline = std::chrono::steady_clock::now() + kTimeout;
  while (store.client(0)->table()[0].aborted_order == 0) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
  }
  EXPECT_EQ(store.client(1, true)->wait_for_notices(deadline), std::vector<int>{0});
  // The store's end waits for rank 2, which has never come.
  const auto before = std::chrono::steady_clock::now();
  store.server.wait_for_others(milliseconds(0), milliseconds(80));
  EXPECT_GE(std::chrono::steady_clock::now() - before, milliseconds(80));
}

// A farewell that the store has not read yet when it finds that the one who sent it does not listen
// any more.
TEST(TcpStore, HearsTheFarewellOfOneWhomItCannotTellOfOthers) {
  for (int round = 0; round < 20; ++round) {
    Store store;
    auto dying = store.client(2, true), leaving = store.client(1, true);
    for (int i = 0; i < 50; ++i) dying->report_aborted("not a number");  // each is passed on
    leaving->report_leaving();
    leaving.reset();
    auto asking = store.client(0);
    const Deadline deadline = std::chrono::steady_clock::now() + kTimeout;
    std::vector<RankStatus> table = asking->table();
    while (table[1].state == RankStatus::State::kAlive &&
           std::chrono::steady_clock::now() < deadline) {
      table = asking->table();
    }
    ASSERT_EQ(table[1].state, RankStatus::State::kLeft) << "round " << round;
  }
}

TEST(TcpStore, TellsWhoIsGoneAndWhoSaidGoodbye) {
  Store store;
  auto watching = store.client(0, true), leaving = store.client(1, true),
       dying = store.client(2, true);
  dying->report_progress(7, 41, "reduce of body.3");
  dying->report_waited_for({0, 1});
  dying->report_aborted("not a number");
  leaving->report_leaving();
  leaving.reset();
  dying.reset();
  std::vector<int> lost;
  const Deadline deadline = std::chrono::steady_clock::now() + kTimeout;
  while (lost.size() < 2 && std::chrono::steady_clock::now() < deadline) {
    for (const int rank : watching->wait_for_notices(deadline)) lost.push_back(rank);
  }
  EXPECT_EQ(lost, std::vector<int>({2, 2}));  // it aborted, and then it was gone
  // Connections that end together are noticed in any order.
  auto asking = store.client(0);
  std::vector<RankStatus> table = asking->table();
  while (table[1].state == RankStatus::State::kAlive &&
         std::chrono::steady_clock::now() < deadline) {
    table = asking->table();
  }
  ASSERT_EQ(table.size(), 3u);
  EXPECT_EQ(table[0].state, RankStatus::State::kAlive);
  EXPECT_EQ(table[1].state, RankStatus::State::kLeft);
  EXPECT_EQ(table[2].state, RankStatus::State::kGone);
  EXPECT_EQ(table[2].step, 7);
  EXPECT_EQ(table[2].sequence, 41);
  EXPECT_EQ(table[2].what, "reduce of body.3");
  EXPECT_EQ(table[2].waited_for, "0 1");
  EXPECT_EQ(table[2].aborted, "not a number");
}

}  // namespace
}  // namespace vitrine

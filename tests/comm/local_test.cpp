// Ranks as threads: results, and what is said when a rank is late, gone, or out of order.
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <thread>

#include "comm/collective_checks.h"
#include "core/error.h"

namespace vitrine {
namespace {

using std::chrono::milliseconds;

std::vector<int> everyone(int ranks) {
  std::vector<int> all(static_cast<size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// Runs body on each rank's own thread; returns what each threw, "" for nothing.
std::vector<std::string> on_ranks(int ranks,
                                  milliseconds timeout,
                                  const std::function<void(World&)>& body,
                                  std::vector<int>* missing = nullptr) {
  auto worlds = make_local_worlds(ranks, timeout);
  std::vector<std::string> thrown(static_cast<size_t>(ranks));
  if (missing) missing->assign(static_cast<size_t>(ranks), -2);
  std::vector<std::thread> threads;
  for (size_t r = 0; r < thrown.size(); ++r) {
    threads.emplace_back([&, r] {
      const std::unique_ptr<World> world = std::move(worlds[r]);
      try {
        body(*world);
      } catch (const CommError& error) {
        thrown[r] = error.what();
        if (missing) (*missing)[r] = error.missing_rank();
      } catch (const std::exception& error) {
        thrown[r] = std::string("not a CommError: ") + error.what();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return thrown;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(LocalWorld, CollectivesEqualPlainArithmeticOnOneToFiveRanks) {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    const auto thrown = on_ranks(ranks, milliseconds(60000), [&](World& world) {
      testing::check_collectives(*world.group(everyone(ranks), "all"));
    });
    for (const std::string& error : thrown) EXPECT_EQ(error, "");
  }
}

TEST(LocalWorld, DisjointGroupsOfOneNameWorkSideBySide) {
  const auto thrown = on_ranks(4, milliseconds(60000), [](World& world) {
    const std::vector<int> pair = world.rank() < 2 ? std::vector{0, 1} : std::vector{2, 3};
    const std::vector<int> cross = world.rank() % 2 ? std::vector{1, 3} : std::vector{0, 2};
    testing::check_collectives(*world.group(pair, "tensor"));
    testing::check_collectives(*world.group(cross, "data"));
  });
  for (const std::string& error : thrown) EXPECT_EQ(error, "");
}

TEST(LocalWorld, ALateRankIsNamedWithTheCollectiveAndTheStep) {
  std::vector<int> missing;
  const auto thrown = on_ranks(
      3,
      milliseconds(200),
      [](World& world) {
        auto group = world.group(everyone(3), "reduce");
        group->set_context(7, "reduce of body.3");
        if (world.rank() == 1) std::this_thread::sleep_for(milliseconds(600));
        std::vector<float> data(12, 1.f);
        group->all_reduce(data.data(), 12, DType::kF32);
      },
      &missing);
  for (const size_t r : {0u, 2u}) {
    EXPECT_TRUE(contains(thrown[r], "reduce of body.3, step 7, group 'reduce'")) << thrown[r];
    EXPECT_TRUE(contains(thrown[r], "for rank 1")) << thrown[r];
    EXPECT_EQ(missing[r], 1);
  }
  EXPECT_NE(thrown[1], "");  // nothing works after a failure, for the late one neither
}

TEST(LocalWorld, ARankThatLeftIsNamedAtOnce) {
  std::vector<int> missing;
  const auto start = std::chrono::steady_clock::now();
  const auto thrown = on_ranks(
      3,
      milliseconds(60000),
      [](World& world) {
        auto group = world.group(everyone(3), "all");
        group->barrier();
        if (world.rank() == 2) return;
        try {
          group->barrier();
        } catch (const CommError&) {
          EXPECT_EQ(world.suspect().rank, 2);
          EXPECT_EQ(world.suspect().sentence, "rank 2 is gone");
          throw;
        }
      },
      &missing);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
  EXPECT_TRUE(contains(thrown[0], "rank 2 is gone")) << thrown[0];
  EXPECT_EQ(missing, std::vector<int>({2, 2, -2}));
}

TEST(LocalWorld, SuspectSaysWhereALaggingRankIs) {
  on_ranks(2, milliseconds(200), [](World& world) {
    auto group = world.group(everyone(2), "gather");
    if (world.rank() == 1) {
      world.progress(6, "backward of body.0");
      std::this_thread::sleep_for(milliseconds(500));
      return;
    }
    std::this_thread::sleep_for(milliseconds(50));
    world.progress(7, "gather of stem");
    group->set_context(7, "gather of stem");
    EXPECT_THROW(group->barrier(), CommError);
    const World::Suspect suspect = world.suspect();
    EXPECT_EQ(suspect.rank, 1);
    EXPECT_TRUE(contains(suspect.sentence, "rank 1 has not entered gather of stem in step 7"))
        << suspect.sentence;
    EXPECT_TRUE(contains(suspect.sentence, "backward of body.0, step 6")) << suspect.sentence;
  });
}

TEST(LocalWorld, RanksInDifferentCollectivesAreBothNamed) {
  const auto thrown = on_ranks(2, milliseconds(60000), [](World& world) {
    auto group = world.group(everyone(2), "all");
    std::vector<std::byte> small(8), big(16);
    if (world.rank() == 0) {
      group->all_gather(small, big);
    } else {
      group->barrier();
    }
  });
  for (const std::string& error : thrown) {
    EXPECT_TRUE(contains(error, "rank 0 is in all_gather")) << error;
    EXPECT_TRUE(contains(error, "rank 1 is in barrier")) << error;
  }
}

TEST(LocalWorld, DifferentSizesAreReportedWithBoth) {
  const auto gather = on_ranks(2, milliseconds(60000), [](World& world) {
    const size_t bytes = world.rank() == 0 ? 8 : 24;
    std::vector<std::byte> in(bytes), out(2 * bytes);
    world.group(everyone(2), "all")->all_gather(in, out);
  });
  for (const std::string& error : gather) {
    EXPECT_TRUE(contains(error, "8 bytes") && contains(error, "24 bytes")) << error;
  }
  const auto uneven = on_ranks(2, milliseconds(60000), [](World& world) {
    const int64_t to_other = world.rank() == 0 ? 5 : 9;
    std::vector<int64_t> in_bytes = {to_other, to_other}, out_bytes = {9, 9};
    std::vector<std::byte> in(static_cast<size_t>(2 * to_other)), out(18);
    world.group(everyone(2), "all")->all_to_all_v(in, in_bytes, out, out_bytes);
  });
  for (const std::string& error : uneven) EXPECT_TRUE(contains(error, "disagree")) << error;
  const auto pair = on_ranks(2, milliseconds(60000), [](World& world) {
    auto group = world.group(everyone(2), "all");
    std::vector<std::byte> data(world.rank() == 0 ? 8 : 24);
    world.rank() == 0 ? group->send(data, 1) : group->receive(data, 0);
  });
  for (const std::string& error : pair) {
    EXPECT_TRUE(contains(error, "expects 24 bytes") && contains(error, "brings 8")) << error;
  }
}

TEST(LocalWorld, AbortWakesEveryPendingCall) {
  const auto start = std::chrono::steady_clock::now();
  const auto thrown = on_ranks(4, milliseconds(60000), [](World& world) {
    auto gather = world.group(everyone(4), "gather");
    auto reduce = world.group(everyone(4), "reduce");
    std::vector<std::byte> data(100);
    switch (world.rank()) {
      case 0:
        return gather->barrier();
      case 1:
        return reduce->receive(data, 0);
      case 2:
        return reduce->send(data, 3);
      default:
        std::this_thread::sleep_for(milliseconds(100));
        world.abort("the watchdog stopped step 9");
        gather->barrier();
    }
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
  for (const std::string& error : thrown) {
    EXPECT_TRUE(contains(error, "aborted by rank 3: the watchdog stopped step 9")) << error;
  }
}

TEST(LocalWorld, RefusesBuffersAndGroupsThatDoNotFit) {
  auto worlds = make_local_worlds(1);
  auto group = worlds[0]->group({0}, "all");
  std::vector<std::byte> in(8), out(9);
  EXPECT_THROW(group->all_gather(in, out), ShapeError);
  EXPECT_THROW(group->all_to_all(in, out), ShapeError);
  const std::vector<int64_t> nine = {9}, negative = {-8}, two = {4, 4};
  EXPECT_THROW(group->all_to_all_v(in, nine, in, nine), ShapeError);
  EXPECT_THROW(group->all_to_all_v(in, negative, in, negative), ShapeError);
  EXPECT_THROW(group->all_to_all_v(in, two, in, two), ShapeError);
  EXPECT_THROW(group->send(in, 1), ShapeError);
  EXPECT_THROW(group->broadcast(in, -1), ShapeError);
  EXPECT_THROW(worlds[0]->group({0, 1}, "pair"), ConfigError);
  EXPECT_THROW(worlds[0]->group({}, "none"), ConfigError);
  EXPECT_THROW(make_local_worlds(0), ConfigError);
}

}  // namespace
}  // namespace vitrine

// What single mechanisms cost: each against arithmetic by hand or a case where it must not matter.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "machines/cluster.h"
#include "plan/collective_time.h"
#include "plan/predict.h"

namespace vitrine {
namespace {

using testing::HasSubstr;

ClusterStrategy experts(int degree) {
  ClusterStrategy s;
  s.mesh.data = 64;
  s.expert = degree;
  s.sequence = 4096;
  s.global_batch = 64;
  s.precision = Precision::kF8;
  return s;
}

// 128 experts: the fewer ranks share them, the more products a rank's host issues one by one.
TEST(Mechanisms, HostTimeGrowsWithTheExpertsOfARank) {
  Planner planner(model_shape("qwen3-30b-a3b"), make_cluster("64xH100"));
  const double many = planner.predict(experts(8)).time.work.launch;
  const double few = planner.predict(experts(64)).time.work.launch;
  EXPECT_GT(many, 2 * few);
  ClusterStrategy graphs = experts(8);
  graphs.graphs = true;
  EXPECT_EQ(planner.predict(graphs).time.work.launch, 0);
}

// Graphs of a mixture's layer leave the experts to the host: their products, exchange and sums.
TEST(Mechanisms, GraphsOfWhatHasOneShapeLeaveTheExpertsToTheHost) {
  Planner planner(model_shape("qwen3-30b-a3b"), make_cluster("64xH100"));
  ClusterStrategy s = experts(8);
  const double none = planner.predict(s).time.work.launch;
  s.router_graphs = true;
  const double router = planner.predict(s).time.work.launch;
  s.router_graphs = false;
  s.static_graphs = true;
  const double layer = planner.predict(s).time.work.launch;
  EXPECT_LT(router, none);
  EXPECT_LT(layer, router);
  EXPECT_GT(layer, 0.3 * none);  // 16 experts a rank, three products with three calls each
  // A dense model has no part that changes its shape: this kind of graph is not for it.
  Planner dense(model_shape("llama3-8b"), make_cluster("8xH100"));
  ClusterStrategy d;
  d.mesh.data = 8;
  d.sequence = 2048;
  d.global_batch = 8;
  const double eager = dense.predict(d).time.work.launch;
  d.static_graphs = d.router_graphs = true;
  EXPECT_EQ(dense.predict(d).time.work.launch, eager);
}

// Weights gathered in fp8 were rounded in shards: half the bytes on the way, no pass over the whole
// for every product.
TEST(Mechanisms, WeightsGatheredInFp8AreNotCastAgain) {
  const Cluster cluster = make_cluster("8xH100");
  ClusterStrategy s;
  s.precision = Precision::kF8;
  s.zero_stage = 3;
  EXPECT_TRUE(card_model(cluster, s).cast_weights);
  s.quantized_gather = true;
  EXPECT_FALSE(card_model(cluster, s).cast_weights);
  s.own_engine = true;
  EXPECT_TRUE(card_model(cluster, s).cast_weights);
}

// Compiled, PyTorch's ring merges its parts in one pass, but waits for each exchange at once.
TEST(Mechanisms, CompiledRingsWaitForWhatTheySend) {
  Planner planner(model_shape("llama3-8b"), make_cluster("8xH100"));
  ClusterStrategy s;
  s.mesh.context = 8;
  s.sequence = 262144;
  s.global_batch = 1;
  const auto exposed = [&](bool eager, bool fused) {
    s.eager_ring = eager;
    s.fused = fused;
    return planner.predict(s).time.work.context;
  };
  // All of it instead of an eighth.
  EXPECT_NEAR(exposed(true, true) / exposed(true, false), 8, 0.5);
  EXPECT_LT(exposed(false, true), exposed(true, false));  // gradients travel in half precision
}

// Of 8 copies to 8 ranks drawn at random 8 (1 - (7/8)^8) = 5.25 ranks are reached.
TEST(Mechanisms, TokensSentOnceARankSpareTheirOtherCopies) {
  Planner planner(model_shape("qwen3-30b-a3b"), make_cluster("64xH100"));
  ClusterStrategy s = experts(8);
  s.graphs = true;
  const auto exchange = [&](Dispatcher dispatcher, bool overlap) {
    s.dispatcher = dispatcher;
    s.overlap_expert = overlap;
    return planner.predict(s).time.work.expert;
  };
  const double copies = exchange(Dispatcher::kCopies, false);
  EXPECT_EQ(exchange(Dispatcher::kNodes, false), copies);  // a group of 8 is in one node
  const double ranks = exchange(Dispatcher::kRanks, false);
  EXPECT_NEAR(ranks / copies, 5.25 / 8, 0.05);
  EXPECT_LT(exchange(Dispatcher::kRanks, true), 0.6 * ranks);
  s.expert = 64;  // 8 nodes
  EXPECT_LT(exchange(Dispatcher::kNodes, false), 0.8 * exchange(Dispatcher::kCopies, false));
}

// The same tokens in longer rows: as many products, and attention whose work doubles with the row
// but whose filling does not.
TEST(Mechanisms, ShortRowsCostAttentionTheirFilling) {
  Planner planner(model_shape("llama3-8b"), make_cluster("8xH100"));
  const auto attention = [&](int64_t sequence) {
    ClusterStrategy s;
    s.mesh.data = 8;
    s.sequence = sequence;
    s.micro_batch = 8192 / sequence;
    s.global_batch = 8 * s.micro_batch;
    return planner.predict(s).time.work.compute[static_cast<size_t>(OpClass::kAttention)];
  };
  const double short_rows = attention(1024), long_rows = attention(8192);
  EXPECT_GT(long_rows / short_rows, 4);
  EXPECT_LT(long_rows / short_rows, 6);  // 8 without the filling and the passes beside it
}

// fp8's products reach a smaller share of their peak than bf16's on H100: 1402.6 of 1979 against
// 794.5 of 989.4.
TEST(Mechanisms, Fp8ProductsHaveTheirOwnCeiling) {
  const Cluster cluster = make_cluster("8xH100");
  ClusterStrategy s;
  const CardModel half = card_model(cluster, s);
  s.precision = Precision::kF8;
  const CardModel narrow = card_model(cluster, s);
  const double n = 16384;
  EXPECT_NEAR(matmul_ns(half, n, n, n) / matmul_ns(narrow, n, n, n, 1, true), 1402.6 / 794.5, 0.01);
}

TEST(Mechanisms, CurrentScalingReadsOperandsOnceMore) {
  Planner planner(model_shape("llama3-8b"), make_cluster("8xH100"));
  ClusterStrategy s;
  s.mesh.data = 8;
  s.sequence = 8192;
  s.global_batch = 8;
  s.precision = Precision::kF8;
  s.graphs = true;
  const double delayed = planner.predict(s).time.step_ns;
  s.current_scaling = true;
  const double current = planner.predict(s).time.step_ns;
  EXPECT_GT(current, 1.01 * delayed);
  EXPECT_LT(current, 1.15 * delayed);
  s.precision = Precision::kBF16;
  const double half = planner.predict(s).time.step_ns;
  s.current_scaling = false;
  EXPECT_EQ(planner.predict(s).time.step_ns, half);
}

// FlashAttention-2 uses Ampere's instructions: Hopper's products may get faster, it does not.
TEST(Mechanisms, OlderAttentionKernelsDoNotProfitFromNewerInstructions) {
  Cluster cluster = make_cluster("8xH100");
  Efficiency& e = cluster.efficiency;
  ClusterStrategy s;
  s.attention_generation = 2;
  e.matmul = e.ceiling;  // in a loop
  const CardModel loop = card_model(cluster, s);
  EXPECT_NEAR(loop.attention_forward * 989.4, 345, 1);
  e.matmul = e.ceiling = 0.9;
  EXPECT_EQ(card_model(cluster, s).attention_forward, loop.attention_forward);
  s.attention_generation = 3;
  EXPECT_GT(card_model(cluster, s).attention_forward, 1.5 * loop.attention_forward);
  // Training sustains as much of them as of products.
  s.attention_generation = 2;
  e.matmul = 0.75 * e.ceiling;
  EXPECT_NEAR(card_model(cluster, s).attention_forward, 0.75 * loop.attention_forward, 1e-12);
}

// A ring of c ranks merges c - 1 parts of 1 / c of the tokens: none where there is one rank.
TEST(Mechanisms, EagerRingsCostMoreWithEveryHop) {
  Planner planner(model_shape("llama3-8b"), make_cluster("8xH100"));
  const auto step = [&](int context, bool eager) {
    ClusterStrategy s;
    s.mesh = {8 / context, 1, 1, context};
    s.sequence = 32768;
    s.global_batch = 8 / context;
    s.eager_ring = eager;
    s.fused = false;  // compiled, the parts are merged in one pass
    return planner.predict(s).time.step_ns;
  };
  EXPECT_EQ(step(1, false), step(1, true));
  const double two = step(2, true) - step(2, false), eight = step(8, true) - step(8, false);
  EXPECT_GT(two, 0);
  EXPECT_NEAR(eight / two, (7.0 / 8) / (1.0 / 2), 0.25);
}

// A vocabulary as heavy as two layers: stages of equal parameters have fewer layers at the ends.
TEST(Mechanisms, StagesCanBeCutByParameters) {
  ModelShape model = model_shape("llama2-7b");
  model.vocab = 128000;
  model.tied_embeddings = false;
  ClusterStrategy s;
  s.sequence = 2048;
  const ShardModel shard = shard_model(model, s);
  const auto weight = [&](std::pair<int, int> part) {
    int64_t sum = 0;
    for (int b = part.first; b < part.second; ++b) {
      sum += shard.kinds[static_cast<size_t>(shard.blocks[static_cast<size_t>(b)])].parameters;
    }
    return sum;
  };
  for (const int stages : {2, 4, 8, 16}) {
    const auto layers = cut_positions(shard, stages), cut = cut_positions(shard, stages, true);
    ASSERT_EQ(cut.size(), static_cast<size_t>(stages));
    int64_t most = 0, most_by_layers = 0;
    for (size_t i = 0; i < cut.size(); ++i) {
      EXPECT_EQ(cut[i].first, i == 0 ? 0 : cut[i - 1].second);
      EXPECT_LT(cut[i].first, cut[i].second);
      most = std::max(most, weight(cut[i]));
      most_by_layers = std::max(most_by_layers, weight(layers[i]));
    }
    EXPECT_EQ(cut.back().second, static_cast<int>(shard.blocks.size()));
    EXPECT_LE(most, most_by_layers);
    const auto mean = static_cast<double>(weight({0, cut.back().second})) / stages;
    EXPECT_LT(static_cast<double>(most), mean + static_cast<double>(weight({1, 2})));
  }
}

// The ranks of a node share its memory and, two by two on DGX A100, the way to it: an optimizer on
// the host gets no faster by cutting it over the cards of one node.
TEST(Mechanisms, AnOptimizerOnTheHostIsSharedByTheNodesRanks) {
  const auto offload = [](const char* gpus, int data) {
    Planner planner(model_shape("llama2-7b"), make_cluster(gpus));
    ClusterStrategy s;
    s.mesh.data = data;
    s.zero_stage = 1;
    s.sequence = 2048;
    s.global_batch = data;
    s.optimizer_tier = s.gradient_tier = Tier::kHost;
    return planner.predict(s).time.offload_ns;
  };
  const double one = offload("1xA100", 1), node = offload("8xA100", 8),
               two = offload("16xA100", 16);
  EXPECT_GE(one, node);  // one card's own link is slower than its part of the node's memory
  EXPECT_NEAR(two / node, 0.5, 0.05);
  // 6.74 B parameters: gradient, master copy and moments read, all but the gradient written, at 0.6
  // of 409.6 GB/s.
  EXPECT_NEAR(node * 1e-9, 6.74 * (2 * 4 + 2 * 12 + 2) / (0.6 * 409.6), 0.05);
}

// The profile's latencies are hops of LL128; small collectives are made of them.
TEST(Mechanisms, LatenciesOfTheProfileCount) {
  Cluster cluster = make_cluster("8xH100");
  const GroupPlace group = place_group(cluster, 8, 1);
  const double usual = collective_ns(cluster, PlanCollective::kAllGather, 1024, group);
  cluster.link_latency_ns *= 10;
  EXPECT_GT(collective_ns(cluster, PlanCollective::kAllGather, 1024, group), 2 * usual);
  cluster.link_latency_ns = 0;
  EXPECT_EQ(collective_ns(cluster, PlanCollective::kAllGather, 1024, group), usual);
}

TEST(Mechanisms, SoftwareOfACardIsChosenByName) {
  Cluster cluster = make_cluster("8xH200");
  ASSERT_TRUE(has_stack(cluster, "vitrine"));
  choose_stack(cluster, "Vitrine");
  EXPECT_THAT(cluster.efficiency.era, HasSubstr("vitrine"));
  EXPECT_FALSE(has_stack(cluster, "no such software"));
  try {
    choose_stack(cluster, "no such software");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("vitrine"));
  }
}

}  // namespace
}  // namespace vitrine

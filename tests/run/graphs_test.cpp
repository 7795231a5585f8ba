// Steps that replay captured blocks against steps that issue everything, on a host that captures:
// were anything missing in the key, a replay would read or write where things once were.
#include <gtest/gtest.h>

#include <map>

#include "support/engine_harness.h"
#include "support/replay_device.h"

namespace vitrine::testing {
namespace {

constexpr int kSteps = 12, kRestlessSteps = 60;

struct Case {
  const char* name;
  int ranks, stage;
  int64_t accumulation;
  bool recompute, tied;
  bool restless = false;  // blocks move between steps, each size by itself
  bool ahead = false;     // batches come a step early
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

struct Outcome {
  std::vector<double> losses, evaluated;
  std::map<std::string, std::vector<float>> parameters;
  GraphCounts counts;         // of rank 0
  int64_t replayed_at_end{};  // in its last training step
  int64_t actions{};          // of a training step's blocks
  int64_t evaluation_replayed{};
};

Outcome train(const Case& c, Graphs graphs) {
  Outcome outcome;
  GatheredState state;
  on_ranks(c.ranks, [&](int rank, World* world) {
    EngineOptions options;
    options.execution = cpu_execution();
    const auto device = std::make_shared<ReplayDevice>();
    device->restless = c.restless;
    device->apart = c.ahead;
    options.execution.device = device;
    options.execution.backend = &replay_backend();
    options.execution.graphs = graphs;
    options.strategy = toy_strategy(c.ranks, c.stage, c.accumulation);
    options.strategy.recompute = c.recompute;
    options.optimizer.lr = 3e-3;
    const auto engine = initialize(toy_decoder(2, c.tied, kToyVocab), toy_batch(2), options, world);
    for (int step = 0; step < (c.restless ? kRestlessSteps : kSteps); ++step) {
      if (step % 3 == 2) {  // holds memory, and has graphs of its own
        const OwnedBatch batch = toy_samples(options.strategy, 1000, 0, rank);
        const int64_t before = engine->graph_counts().replayed;
        const double loss = engine->evaluate(batch.views).loss;
        if (rank == 0) outcome.evaluated.push_back(loss);
        if (rank == 0) outcome.evaluation_replayed += engine->graph_counts().replayed - before;
      }
      const int64_t before = engine->graph_counts().replayed;
      OwnedBatch batch;
      const auto batch_of = [&](int micro) -> BatchViews {
        const bool next = micro == c.accumulation;
        batch = toy_samples(options.strategy, step + (next ? 1 : 0), next ? 0 : micro, rank);
        return batch.views;
      };
      const double loss = engine->train_step(batch_of, 0, 0, 0, c.ahead).output.loss;
      if (rank != 0) continue;
      outcome.losses.push_back(loss);
      outcome.replayed_at_end = engine->graph_counts().replayed - before;
    }
    state.add(*engine);
    if (rank != 0) return;
    outcome.counts = engine->graph_counts();
    for (const vitrine::Action& action : engine->schedule().actions) {
      const bool block =
          action.kind == ActionKind::kForward || action.kind == ActionKind::kBackward;
      outcome.actions += block ? 1 : 0;
    }
  });
  outcome.parameters = state.units();
  return outcome;
}

class ReplayedSteps : public ::testing::TestWithParam<Case> {};

TEST_P(ReplayedSteps, GiveTheBitsOfIssuedOnes) {
  const Outcome issued = train(GetParam(), Graphs::kOff);
  const Outcome replayed = train(GetParam(), Graphs::kOn);
  EXPECT_EQ(replayed.losses, issued.losses);
  EXPECT_EQ(replayed.evaluated, issued.evaluated);
  EXPECT_TRUE(replayed.parameters == issued.parameters);
  EXPECT_EQ(issued.counts.replayed + issued.counts.issued, 0);
  EXPECT_EQ(replayed.counts.refused, 0) << replayed.counts.why_refused;
  EXPECT_GT(replayed.counts.replayed, 0);
  EXPECT_GT(replayed.evaluation_replayed, 0);
  if (GetParam().restless) return;
  // Addresses repeat from step to step, at every stage.
  EXPECT_EQ(replayed.replayed_at_end, replayed.actions);
  EXPECT_LT(replayed.counts.captured, 4 * replayed.actions);
}

INSTANTIATE_TEST_SUITE_P(Cases,
                         ReplayedSteps,
                         ::testing::Values(Case{"Stage0", 1, 0, 1, false, false},
                                           Case{"Accumulated", 1, 0, 3, false, true},
                                           Case{"Recomputed", 1, 0, 2, true, false},
                                           Case{"TwoRanksStage0", 2, 0, 2, false, false},
                                           Case{"TwoRanksStage1", 2, 1, 2, false, true},
                                           Case{"TwoRanksStage2", 2, 2, 2, false, false},
                                           Case{"TwoRanksStage3", 2, 3, 2, true, true},
                                           Case{"Ahead", 1, 0, 2, false, true, false, true},
                                           Case{"Restless", 1, 0, 2, false, true, true},
                                           Case{"RestlessRecomputed", 1, 0, 1, true, false, true},
                                           Case{"RestlessStage3", 2, 3, 2, false, false, true}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace vitrine::testing

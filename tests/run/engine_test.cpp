// The engine's face: misuse is told what to do, frozen parameters stay, overflow skips a step, low
// precision.
#include "run/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "core/error.h"
#include "schedule/memory.h"
#include "support/engine_harness.h"
#include "support/scratch.h"

namespace vitrine::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Model toy() { return toy_decoder(2, true, kToyVocab); }

EngineOptions options_of(const Strategy& strategy) {
  EngineOptions options;
  options.strategy = strategy;
  options.optimizer.lr = 1e-3;
  options.schedule.shape = LearningRateSchedule::Shape::kConstant;
  return options;
}

class EngineMisuse : public ::testing::Test {
 protected:
  EngineMisuse()
      : strategy_(toy_strategy(1, 0, 2)),
        engine_(initialize(toy(), toy_batch(2), options_of(strategy_))),
        batch_(toy_samples(strategy_, 0, 0, 0)) {}
  std::string says(const std::function<void()>& call) { return message_of<ConfigError>(call); }

  Strategy strategy_;
  std::unique_ptr<Engine> engine_;
  OwnedBatch batch_;
};

TEST_F(EngineMisuse, StepWithoutBackwardIsToldToCallBackward) {
  EXPECT_THAT(says([&] { engine_->step(); }), HasSubstr("0 of 2 micro-batches"));
  engine_->forward(batch_.views);
  EXPECT_THAT(says([&] { engine_->step(); }), HasSubstr("call backward(loss) first"));
}

TEST_F(EngineMisuse, BackwardWithoutForwardIsToldToCallForward) {
  EXPECT_THAT(says([&] { engine_->backward(1.0); }), HasSubstr("call forward(batch)"));
  engine_->backward(engine_->forward(batch_.views));
  EXPECT_THAT(says([&] { engine_->backward(1.0); }), HasSubstr("call forward(batch)"));
}

TEST_F(EngineMisuse, ForwardTwiceIsToldOfBackwardAndEvaluate) {
  engine_->forward(batch_.views);
  EXPECT_THAT(says([&] { engine_->forward(batch_.views); }),
              AllOf(HasSubstr("call backward(loss) first"), HasSubstr("evaluate()")));
}

TEST_F(EngineMisuse, ForwardBeyondTheAccumulationIsToldToStep) {
  for (int micro = 0; micro < 2; ++micro) engine_->backward(engine_->forward(batch_.views));
  EXPECT_THAT(says([&] { engine_->forward(batch_.views); }), HasSubstr("call step() first"));
}

TEST_F(EngineMisuse, AScaledLossIsToldThatTheEngineScales) {
  const double loss = engine_->forward(batch_.views);
  EXPECT_THAT(says([&] { engine_->backward(loss / 2); }),
              HasSubstr("must not be scaled or averaged by hand"));
  engine_->backward(loss);  // a refused call changes nothing
}

TEST_F(EngineMisuse, StepTooEarlyIsToldHowManyMicroBatchesAreMissing) {
  engine_->backward(engine_->forward(batch_.views));
  EXPECT_THAT(says([&] { engine_->step(); }),
              AllOf(HasSubstr("1 of 2 micro-batches"),
                    HasSubstr("1 more times"),
                    HasSubstr("gradient_accumulation_steps")));
}

TEST_F(EngineMisuse, ClearingGradientsIsRefusedOnlyWhereItThrowsWorkAway) {
  engine_->clear_gradients();
  engine_->backward(engine_->forward(batch_.views));
  EXPECT_THAT(says([&] { engine_->clear_gradients(); }), HasSubstr("remove the call"));
  engine_->backward(engine_->forward(batch_.views));
  engine_->step();
  engine_->clear_gradients();
}

TEST_F(EngineMisuse, EvaluateSaveAndTrainStepInMidStepAreToldToStep) {
  const ScratchFolder folder;
  engine_->backward(engine_->forward(batch_.views));
  EXPECT_THAT(says([&] { engine_->evaluate(batch_.views); }), HasSubstr("call step() first"));
  EXPECT_THAT(says([&] { engine_->save(folder.path(), "{}"); }), HasSubstr("call step() first"));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_THAT(says([&] { toy_step(*engine_); }), HasSubstr("use train_step alone"));
  EXPECT_THAT(says([&] { engine_->load(folder.path()); }), HasSubstr("call step() first"));
}

TEST_F(EngineMisuse, AMisuseLeavesAnEngineThatStillTrains) {
  const auto other = initialize(toy(), toy_batch(2), options_of(strategy_));
  toy_step(*other);
  for (int micro = 0; micro < 2; ++micro) {
    const OwnedBatch batch = toy_samples(strategy_, 0, micro, 0);
    EXPECT_THROW(engine_->step(), ConfigError);
    const double loss = engine_->forward(batch.views);
    EXPECT_THROW(engine_->forward(batch.views), ConfigError);
    EXPECT_THROW(engine_->backward(2 * loss), ConfigError);
    engine_->backward(loss);
  }
  engine_->step();
  GatheredState ours, theirs;
  ours.add(*engine_);
  theirs.add(*other);
  EXPECT_EQ(ours.units(), theirs.units());
}

TEST(Engine, SaysThatABatchLacksWhatTheModelReads) {
  const auto engine = initialize(toy(), toy_batch(2), options_of(toy_strategy(1, 0)));
  OwnedBatch batch = toy_samples(engine->strategy(), 0, 0, 0);
  batch.views.pop_back();
  EXPECT_THAT(message_of<ConfigError>([&] { engine->forward(batch.views); }),
              HasSubstr("\"targets\""));
}

TEST(Engine, RefusesAWorldThatTheMeshDoesNotFit) {
  EXPECT_THAT(message_of<ConfigError>(
                  [] { initialize(toy(), toy_batch(2), options_of(toy_strategy(2, 0))); }),
              AllOf(HasSubstr("2 ranks"), HasSubstr("1 were started")));
}

TEST(Engine, RefusesRanksThatWereGivenDifferentSeeds) {
  EXPECT_THAT(message_of<ConfigError>([] {
                on_ranks(2, [](int rank, World* world) {
                  EngineOptions options = options_of(toy_strategy(2, 1));
                  options.seed = static_cast<uint64_t>(rank);
                  initialize(toy(), toy_batch(2), options, world);
                });
              }),
              HasSubstr("the same file and options"));
}

TEST(Engine, RefusesALossThatNoTrainableParameterReaches) {
  const auto detached = [] {
    Model model;
    model.add("embed", std::make_unique<ToyEmbed>(kToyVocab, 24), {{"tokens", "batch.tokens"}});
    model.add("body", std::make_unique<ToyBody>(24, 2, 37), {{"residual", "embed.residual"}});
    model.add("head",
              std::make_unique<ToyHead>(kToyVocab, 24, false),
              {{"residual", PortSource("body.residual", true)},
               {"delta", PortSource("body.delta", true)},
               {"targets", "batch.targets"}});
    model.add_loss("head.loss");
    return model;
  };
  EngineOptions options = options_of(toy_strategy(1, 0));
  EXPECT_NO_THROW(initialize(detached(), toy_batch(2), options));  // the head still learns
  options.strategy.frozen = {"head.*"};
  EXPECT_THAT(message_of<ConfigError>([&] { initialize(detached(), toy_batch(2), options); }),
              AllOf(HasSubstr("head.loss does not depend on any trainable parameter"),
                    HasSubstr("detached")));
}

TEST(LossWatch, WarnsOnceWhenTheLossStandsStill) {
  LossWatch still, falling;
  int warnings = 0;
  std::string text;
  for (int64_t step = 0; step < 1000; ++step) {
    const std::string warning =
        still.observe(step, 4.0 + 0.001 * static_cast<double>(step % 3), 1e-9);
    if (!warning.empty()) ++warnings, text = warning;
    EXPECT_EQ(falling.observe(step, 4.0 * std::exp(-1e-3 * static_cast<double>(step)), 1e-3), "");
  }
  EXPECT_EQ(warnings, 1);
  EXPECT_THAT(
      text,
      AllOf(HasSubstr("has not moved"), HasSubstr("learning rate 1e-09"), HasSubstr("frozen")));
}

TEST(Frozen, ParametersStayAndCostNothingAtEveryStage) {
  std::map<std::string, std::vector<float>> reference;
  for (int stage = 0; stage <= 3; ++stage) {
    Strategy strategy = toy_strategy(2, stage);
    strategy.frozen = {"embed.table", "body.0.*"};
    GatheredState state;
    on_ranks(2, [&](int, World* world) {
      const auto engine =
          initialize(toy_decoder(2, false, kToyVocab), toy_batch(2), options_of(strategy), world);
      ShardStore& store = engine->store();
      std::map<int, std::vector<std::byte>> before;
      const auto bytes_of = [&](int u) {
        const auto* data = static_cast<const std::byte*>(store.parameter_shard(u));
        return std::vector<std::byte>(data, data + store.updated(u).size() * 4);
      };
      int frozen = 0, changed = 0;
      const int units = static_cast<int>(store.table().units.size());
      // Stage 3 holds a shard of frozen units, as `updated` says; the others hold all of them.
      for (int u = 0; u < units; ++u) before[u] = bytes_of(u);
      for (int step = 0; step < 3; ++step) toy_step(*engine);
      for (int u = 0; u < units; ++u) {
        if (store.table().units[static_cast<size_t>(u)].frozen) {
          ++frozen;
          EXPECT_EQ(bytes_of(u), before[u]);
          EXPECT_EQ(store.state(u, OptimizerState::kExpAvg).data, nullptr);
          EXPECT_EQ(store.state(u, OptimizerState::kExpAvgSq).data, nullptr);
        } else {
          changed += bytes_of(u) != before[u];
        }
      }
      EXPECT_EQ(frozen, 2);
      EXPECT_EQ(changed, 2);
      const MemoryByCategory got = engine->ledger().by_category();
      const MemoryByCategory want =
          model_state_bytes(store.table(), strategy, engine->schedule().blocks);
      for (const auto category :
           {MemoryCategory::kParameters, MemoryCategory::kGradients, MemoryCategory::kOptimizer}) {
        EXPECT_EQ(got[static_cast<size_t>(category)], want[static_cast<size_t>(category)])
            << "stage " << stage;
      }
      // Nothing at all for frozen elements: the trainable ones alone, rounded up to whole shards.
      int64_t trainable = 0;
      for (const Unit& unit : store.table().units) {
        if (!unit.frozen) trainable += padded_elements(unit.elements, 2);
      }
      EXPECT_EQ(got[static_cast<size_t>(MemoryCategory::kGradients)],
                trainable * 4 / (stage >= 2 ? 2 : 1));
      EXPECT_EQ(got[static_cast<size_t>(MemoryCategory::kOptimizer)],
                trainable * 8 / (stage >= 1 ? 2 : 1));
      state.add(*engine);
    });
    if (stage == 0) reference = state.units();
    EXPECT_EQ(state.units(), reference) << "stage " << stage;
  }
}

// The scale starts so high that the first gradients cannot be fp16 numbers.
TEST(LossScaling, AnOverflowSkipsTheStepOnAllRanksAndHalvesTheScaleAfterHysteresis) {
  for (const int stage : {0, 3}) {
    Strategy strategy = toy_strategy(2, stage);
    strategy.compute_dtype = DType::kF16;
    strategy.gradient_dtype = DType::kF16;
    EngineOptions options = options_of(strategy);
    options.scaler.scale = 0x1p30;
    on_ranks(2, [&](int rank, World* world) {
      const auto engine = initialize(toy(), toy_batch(2), options, world);
      GatheredState start;
      start.add(*engine);
      // Rank 1 has no targets, so that only rank 0 can overflow.
      const auto step = [&] {
        OwnedBatch batch;
        return engine->train_step([&](int micro) -> BatchViews {
          batch = toy_samples(strategy, engine->steps_done(), micro, rank);
          if (rank == 1)
            std::memset(batch.data[1].second.data(), 0xff, batch.data[1].second.size());
          return batch.views;
        });
      };
      double scale = 0x1p30;
      int64_t skipped = 0;
      StepReport report;
      for (; skipped < 40; ++skipped) {
        report = step();
        EXPECT_EQ(report.loss_scale, scale);
        EXPECT_EQ(report.skipped_steps, skipped + (report.skipped ? 1 : 0));
        if (!report.skipped) break;
        if (skipped >= 1) scale /= 2;  // hysteresis 2: the first overflow is let pass
        GatheredState now;
        now.add(*engine);
        ASSERT_EQ(now.units(), start.units());
      }
      EXPECT_GE(skipped, 3);
      ASSERT_FALSE(report.skipped);
      EXPECT_EQ(engine->steps_done(), skipped + 1);
      EXPECT_EQ(engine->skipped_steps(), skipped);
      EXPECT_TRUE(std::isfinite(report.output.gradient_norm));
      GatheredState now;
      now.add(*engine);
      EXPECT_NE(now.units(), start.units());
    });
  }
}

TEST(LossScaling, SkippedStepsDoNotCountForAdamW) {
  Strategy strategy = toy_strategy(1, 0);
  strategy.compute_dtype = DType::kF16;
  EngineOptions options = options_of(strategy);
  options.scaler.scale = 1024;
  const auto plain = initialize(toy(), toy_batch(2), options);
  options.scaler.scale = 0x1p30;
  const auto late = initialize(toy(), toy_batch(2), options);
  // Both take one applied step on the same batch; bias correction is that of step 1 in both.
  const OwnedBatch batch = toy_samples(strategy, 0, 0, 0);
  const auto same = [&](int) { return batch.views; };
  plain->train_step(same);
  int64_t steps = 1;
  while (late->train_step(same).skipped) ASSERT_LT(++steps, 60);
  GatheredState a, b;
  a.add(*plain);
  b.add(*late);
  ASSERT_EQ(late->skipped_steps(), steps - 1);
  for (const auto& [name, values] : a.units()) {
    const std::vector<float>& other = b.units().at(name);
    double error = 0;
    for (size_t i = 0; i < values.size(); ++i)
      error += std::fabs(double{values[i]} - double{other[i]});
    // A step moves an element by about lr = 1e-3; gradients that are rounded to zero account for
    // the rest.
    EXPECT_LT(error / static_cast<double>(values.size()), 1e-4) << name;
  }
}

TEST(LossScaling, GradientsThatStayInfiniteEndFp32Training) {
  Strategy strategy = toy_strategy(1, 0);
  EngineOptions options = options_of(strategy);
  options.max_bad_steps = 3;
  const auto engine = initialize(toy(), toy_batch(2), options);
  const Unit& unit = engine->store().table().units[0];
  auto* table = engine->store().state(0, OptimizerState::kMaster).as<float>();
  std::fill_n(table, unit.elements, std::numeric_limits<float>::infinity());
  EXPECT_TRUE(toy_step(*engine).skipped);
  EXPECT_TRUE(toy_step(*engine).skipped);
  EXPECT_THAT(message_of<NumericError>([&] { toy_step(*engine); }),
              AllOf(HasSubstr("3 steps in a row"), HasSubstr("lower the learning rate")));
}

struct Trained {
  std::vector<double> losses, norms;
  std::map<std::string, std::vector<float>> units;
  bool operator==(const Trained&) const = default;
};

Trained train_toy(const Strategy& strategy, int steps) {
  Trained trained;
  GatheredState state;
  on_ranks(strategy.mesh.data, [&](int rank, World* world) {
    const auto engine =
        initialize(toy(), toy_batch(strategy.micro_batch), options_of(strategy), world);
    for (int step = 0; step < steps; ++step) {
      const StepReport report = toy_step(*engine);
      if (rank != 0) continue;
      trained.losses.push_back(report.output.loss);
      trained.norms.push_back(report.output.gradient_norm);
    }
    state.add(*engine);
  });
  trained.units = state.units();
  return trained;
}

TEST(Bf16, TrainingFollowsFp32Loosely) {
  constexpr int kSteps = 60;
  const Trained full = train_toy(toy_strategy(1, 0), kSteps);
  Strategy strategy = toy_strategy(1, 0);
  strategy.compute_dtype = DType::kBF16;
  for (const DType gradients : {DType::kF32, DType::kBF16}) {
    strategy.gradient_dtype = gradients;
    const Trained half = train_toy(strategy, kSteps);
    EXPECT_LT(half.losses.back(), half.losses.front() - 0.1);
    for (size_t i = 0; i < kSteps; ++i) ASSERT_NEAR(half.losses[i] / full.losses[i], 1, 0.02) << i;
    EXPECT_NE(half.losses, full.losses);
  }
}

TEST(Bf16, StagesAreBitwiseEqual) {
  for (const DType gradients : {DType::kF32, DType::kBF16}) {
    Strategy strategy = toy_strategy(2, 0);
    strategy.compute_dtype = DType::kBF16;
    strategy.gradient_dtype = gradients;
    const Trained reference = train_toy(strategy, 10);
    for (int stage = 1; stage <= 3; ++stage) {
      strategy.shard = Sharding::stage(stage);
      EXPECT_TRUE(train_toy(strategy, 10) == reference)
          << "stage " << stage << ", " << dtype_name(gradients);
    }
  }
}

Strategy with_bf16_states(Strategy strategy) {
  strategy.compute_dtype = strategy.gradient_dtype = DType::kBF16;
  strategy.master_dtype = strategy.moment_dtype = DType::kBF16;
  return strategy;
}

TEST(Bf16States, TrainingFollowsFp32Loosely) {
  constexpr int kSteps = 60;
  const Trained full = train_toy(toy_strategy(1, 0), kSteps);
  const Trained narrow = train_toy(with_bf16_states(toy_strategy(1, 0)), kSteps);
  EXPECT_LT(narrow.losses.back(), narrow.losses.front() - 0.1);
  for (size_t i = 0; i < kSteps; ++i) ASSERT_NEAR(narrow.losses[i] / full.losses[i], 1, 0.02) << i;
}

// Bits of roundings go by parameter: neither shards nor units that stage 3 keeps whole show.
TEST(Bf16States, StagesAreBitwiseEqual) {
  Strategy strategy = with_bf16_states(toy_strategy(2, 0));
  strategy.persistence_threshold = 100;
  const auto flat = [](const Trained& trained) {
    std::vector<float> values;
    for (const auto& [name, unit] : trained.units) {
      values.insert(values.end(), unit.begin(), unit.end());
    }
    std::sort(values.begin(), values.end());
    return values;
  };
  const Trained reference = train_toy(strategy, 10);
  for (int stage = 1; stage <= 3; ++stage) {
    strategy.shard = Sharding::stage(stage);
    const Trained trained = train_toy(strategy, 10);
    EXPECT_EQ(trained.losses, reference.losses) << stage;
    EXPECT_EQ(trained.norms, reference.norms) << stage;
    EXPECT_TRUE(flat(trained) == flat(reference)) << stage;  // units differ at stage 3
  }
}

TEST(Bf16States, AreRefusedOutsideBf16) {
  Strategy strategy = toy_strategy(1, 0);
  strategy.moment_dtype = DType::kBF16;
  EXPECT_THAT(message_of<ConfigError>([&] { strategy.validate(); }),
              HasSubstr("moments of a f32 model are f32, got bf16"));
}

}  // namespace
}  // namespace vitrine::testing

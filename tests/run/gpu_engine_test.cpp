// The engine on a GPU: the CPU's curves, resume, evaluation, recomputation, bad numbers, no memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/error.h"
#include "gpu/gpu.h"
#include "ops/gpu/precision.h"
#include "support/scratch.h"
#include "support/tolerance.h"
#include "support/trainee.h"

namespace vitrine::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// |a - b| over what training has changed since `start`.
double distance(const std::vector<float>& a,
                const std::vector<float>& b,
                const std::vector<float>& start) {
  double apart = 0, moved = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    apart += std::pow(double{a[i]} - double{b[i]}, 2);
    moved += std::pow(double{b[i]} - double{start[i]}, 2);
  }
  return std::sqrt(apart / moved);
}

class GpuEngine : public DeterministicGpu, public ::testing::WithParamInterface<Subject> {
 protected:
  static Execution gpu_now() { return gpu_execution(0); }
};

TEST_P(GpuEngine, FollowsTheCpuInF32) {
  Trainee host(GetParam(), cpu_execution(), strategy_of());
  Trainee device(GetParam(), gpu_now(), strategy_of());
  const Parameters start = parameters_of(host.engine());
  EXPECT_TRUE(parameters_of(device.engine()) == start);
  const Trained expected = host.train(10), got = device.train(10);
  for (size_t i = 0; i < expected.losses.size(); ++i) {
    EXPECT_NEAR(got.losses[i] / expected.losses[i], 1, test::kDeviceLoss) << "step " << i;
  }
  for (const auto& [name, values] : expected.parameters) {
    EXPECT_LT(distance(got.parameters.at(name), values, start.at(name)), test::kDeviceUpdate)
        << name;
  }
}

TEST_P(GpuEngine, FollowsF32LooselyInBf16) {
  for (const bool repeatable : {true, false}) {
    gpu::set_deterministic(repeatable);
    const Trained full = Trainee(GetParam(), gpu_now(), strategy_of()).train(10);
    const Trained half = Trainee(GetParam(), gpu_now(), strategy_of(DType::kBF16)).train(10);
    for (size_t i = 0; i < full.losses.size(); ++i) {
      EXPECT_NEAR(half.losses[i] / full.losses[i], 1, test::kBf16Loss) << "step " << i;
    }
    EXPECT_NE(half.losses, full.losses);
  }
}

TEST_P(GpuEngine, ScalesLossesInF16) {
  Strategy strategy = strategy_of(DType::kF16);
  strategy.gradient_dtype = DType::kF16;
  const Trained full = Trainee(GetParam(), gpu_now(), strategy_of()).train(10);
  const Trained half = Trainee(GetParam(), gpu_now(), strategy).train(10);
  for (size_t i = 0; i < full.losses.size(); ++i) {
    EXPECT_NEAR(half.losses[i] / full.losses[i], 1, test::kBf16Loss) << "step " << i;
  }
  // The first gradients cannot be fp16 numbers: skipped, and nothing changes, until the scale fits.
  Trainee high(GetParam(), gpu_now(), strategy, 20, 0x1p40);
  const Parameters start = parameters_of(high.engine());
  int skipped = 0;
  while (high.step().skipped) {
    ASSERT_LT(++skipped, 50);
    ASSERT_TRUE(parameters_of(high.engine()) == start);
  }
  EXPECT_GE(skipped, 3);
  EXPECT_FALSE(parameters_of(high.engine()) == start);
}

TEST_P(GpuEngine, ResumesBitwise) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const ScratchFolder folder;
    const Trained whole = Trainee(GetParam(), gpu_now(), strategy_of(dtype)).train(6);
    {
      Trainee first(GetParam(), gpu_now(), strategy_of(dtype));
      first.train(3);
      first.engine().save(folder.path(), "{}");
    }
    Trainee second(GetParam(), gpu_now(), strategy_of(dtype));
    second.engine().load(folder.path());
    EXPECT_EQ(second.engine().steps_done(), 3);
    const Trained rest = second.train(3);
    EXPECT_EQ(rest.losses, std::vector<double>(whole.losses.begin() + 3, whole.losses.end()));
    EXPECT_TRUE(rest.parameters == whole.parameters) << dtype_name(dtype);
  }
}

TEST_P(GpuEngine, GoesOnOnTheCpuAndEvaluatesToTheSame) {
  const ScratchFolder folder;
  Trainee device(GetParam(), gpu_now(), strategy_of());
  device.train(3);
  device.engine().save(folder.path(), "{}");
  Trainee host(GetParam(), cpu_execution(), strategy_of());
  host.engine().load(folder.path());
  EXPECT_TRUE(parameters_of(host.engine()) == parameters_of(device.engine()));

  const OwnedBatch batch = device.batch(1000);
  const EvalReport expected = host.engine().evaluate(batch.views);
  const EvalReport got = device.engine().evaluate(batch.views);
  EXPECT_NEAR(got.loss / expected.loss, 1, test::kDeviceLoss);
  ASSERT_EQ(got.results.size(), expected.results.size());
  for (const auto& [name, want] : expected.results) {
    const TensorView& have = got.results.at(name);
    ASSERT_EQ(have.elements(), want.elements()) << name;
    ASSERT_EQ(want.dtype, DType::kF32) << name;
    double apart = 0, largest = 0;
    for (int64_t i = 0; i < want.elements(); ++i) {
      const double a = have.as<float>()[i], b = want.as<float>()[i];
      ASSERT_TRUE(std::isfinite(a)) << name << " " << i;
      apart = std::max(apart, std::fabs(a - b));
      largest = std::max(largest, std::fabs(b));
    }
    EXPECT_LT(apart, test::gpu_row(DType::kF32) * largest) << name;
  }
  EXPECT_NEAR(device.step().output.loss / host.step().output.loss, 1, test::kDeviceLoss);
}

TEST_P(GpuEngine, EvaluatesWithoutAChangeToTraining) {
  Trainee plain(GetParam(), gpu_now(), strategy_of()),
      watched(GetParam(), gpu_now(), strategy_of());
  const OwnedBatch batch = plain.batch(1000);
  plain.train(1);
  watched.train(1);
  watched.engine().evaluate(batch.views);
  EXPECT_TRUE(watched.train(2) == plain.train(2));
}

TEST_P(GpuEngine, AsksAheadForTheSameBatches) {
  const Trained due = Trainee(GetParam(), gpu_now(), strategy_of()).train(4);
  for (const bool refuse : {false, true}) {
    Trainee early(GetParam(), gpu_now(), strategy_of());
    early.ask_ahead(refuse);
    EXPECT_TRUE(early.train(4) == due) << refuse;
    EXPECT_EQ(early.asked_early(), 4);
  }
}

TEST_P(GpuEngine, RecomputesBitwise) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    Strategy strategy = strategy_of(dtype);
    const Trained kept = Trainee(GetParam(), gpu_now(), strategy).train(4);
    strategy.recompute = true;
    Trainee again(GetParam(), gpu_now(), strategy);
    EXPECT_TRUE(again.train(4) == kept) << dtype_name(dtype);
  }
}

TEST_P(GpuEngine, StopsAfterStepsWhoseGradientsAreNotFinite) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  const bool has_floats = std::string(GetParam().name).starts_with("World");
  for (const bool in_batch : {true, false}) {
    if (in_batch && !has_floats) continue;
    Trainee trainee(GetParam(), gpu_now(), strategy_of(), 3);
    Engine& engine = trainee.engine();
    trainee.train(1);
    if (in_batch) {
      trainee.poison(kNaN);
    } else {
      // All of the first unit: a single row of a table may not be drawn.
      const std::vector<float> all(static_cast<size_t>(engine.store().updated(0).size()), kNaN);
      engine.ledger().device().upload(engine.store().state(0, OptimizerState::kMaster).data,
                                      all.data(),
                                      all.size() * sizeof(float));
    }
    const auto others = [&] {
      Parameters now = parameters_of(engine);
      now.erase(engine.store().table().units[0].name);  // NaN is not equal to itself
      return now;
    };
    const Parameters before = others();
    for (int64_t bad = 1; bad <= 2; ++bad) {
      const StepReport report = trainee.step();
      EXPECT_TRUE(report.output.overflow);
      EXPECT_TRUE(report.skipped);
      EXPECT_EQ(report.skipped_steps, bad);
    }
    EXPECT_TRUE(others() == before);
    EXPECT_THAT(message_of<NumericError>([&] { trainee.step(); }),
                AllOf(HasSubstr("3 steps in a row"), HasSubstr("the last is step 3")));
  }
}

TEST_P(GpuEngine, SaysWhereMemoryRanOutAndWhatHoldsIt) {
  {
    Trainee trainee(GetParam(), gpu_now(), strategy_of());
    MemoryLedger& ledger = trainee.engine().ledger();
    ledger.set_capacity(ledger.current() + 512);
    EXPECT_THAT(message_of<OutOfMemory>([&] { trainee.step(); }),
                AllOf(HasSubstr("out of memory on " + ledger.device().name()),
                      HasSubstr("asks for"),
                      HasSubstr("parameters"),
                      HasSubstr("optimizer")));
  }
  // Another engine finds the GPU as it was.
  EXPECT_EQ(Trainee(GetParam(), gpu_now(), strategy_of()).train(1).losses.size(), 1u);
}

INSTANTIATE_TEST_SUITE_P(Models, GpuEngine, ::testing::ValuesIn(kSubjects), [](const auto& info) {
  return std::string(info.param.name);
});

}  // namespace
}  // namespace vitrine::testing

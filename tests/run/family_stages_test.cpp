// The real model families under every ZeRO stage on four ranks: bitwise equal losses over 20 steps.
#include <gtest/gtest.h>

#include "core/json.h"
#include "models/registry.h"
#include "support/train_harness.h"

namespace vitrine::testing {
namespace {

constexpr int kSteps = 20;

struct Layout {
  int ranks = 1, stage = 0;
  int64_t micro_batch = 8, accumulation = 1;
  bool recompute = false;
};

// Values of global sample `sample`, the same however the global batch is cut.
void fill_sample(const TensorView& field, int64_t row, int64_t sample, int64_t largest_id) {
  const int64_t count = field.elements() / field.shape[0];
  const Philox random(11, static_cast<uint64_t>(sample));
  for (int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<uint64_t>(i);
    if (field.dtype == DType::kI32) {
      field.as<int32_t>()[row * count + i] =
          static_cast<int32_t>(random.below(static_cast<uint64_t>(largest_id), at));
    } else {
      field.as<float>()[row * count + i] = static_cast<float>(random.uniform(at));
    }
  }
}

HarnessResult run(const Json& section, int64_t largest_id, const Layout& layout) {
  BuildOptions build;
  build.micro_batch = layout.micro_batch;
  const BatchTypes types = build_model(section, build).batch;
  Strategy strategy;
  strategy.mesh.data = layout.ranks;
  strategy.shard = Sharding::stage(layout.stage);
  strategy.micro_batch = layout.micro_batch;
  strategy.accumulation = layout.accumulation;
  strategy.recompute = layout.recompute;
  strategy.persistence_threshold = 0;
  const auto batches = [=](int64_t step, int micro, int data_index) {
    OwnedBatch batch;
    const int64_t first = (step * layout.accumulation + micro) * layout.ranks * layout.micro_batch +
                          data_index * layout.micro_batch;
    for (const auto& [name, type] : types) {
      batch.data.emplace_back(name, std::vector<std::byte>(static_cast<size_t>(type.bytes())));
    }
    for (size_t f = 0; f < types.size(); ++f) {
      const TensorView view{
          batch.data[f].second.data(), types[f].second.shape, types[f].second.dtype};
      for (int64_t row = 0; row < layout.micro_batch; ++row) {
        fill_sample(view, row, first + row, largest_id);
      }
      batch.views.emplace_back(types[f].first, view);
    }
    return batch;
  };
  OptimizerConfig optimizer;
  optimizer.lr = 3e-4;
  return train([&] { return build_model(section, build).model; },
               types,
               batches,
               strategy,
               kSteps,
               optimizer);
}

void expect_near(const HarnessResult& a, const HarnessResult& b) {
  EXPECT_NEAR(a.losses.front() / b.losses.front(), 1, 1e-6);
  EXPECT_NEAR(a.losses.back() / b.losses.back(), 1, 1e-5);
}

void expect_stages_agree(const Json& section, int64_t largest_id) {
  const HarnessResult one = run(section, largest_id, {1, 0, 8, 1});
  const HarnessResult zero = run(section, largest_id, {4, 0, 2, 1});
  EXPECT_LT(one.losses.back(), one.losses.front());
  expect_near(zero, one);
  for (int stage = 1; stage <= 3; ++stage) {
    const HarnessResult other = run(section, largest_id, {4, stage, 2, 1});
    EXPECT_EQ(zero.losses, other.losses) << "stage " << stage;
    EXPECT_EQ(zero.parameters, other.parameters) << "stage " << stage;
  }
  const HarnessResult accumulated = run(section, largest_id, {4, 0, 1, 2});
  EXPECT_EQ(accumulated.losses, run(section, largest_id, {4, 1, 1, 2}).losses);
  const HarnessResult reduced_often = run(section, largest_id, {4, 2, 1, 2});
  EXPECT_EQ(reduced_often.losses, run(section, largest_id, {4, 3, 1, 2}).losses);
  expect_near(accumulated, one);
  expect_near(reduced_often, one);
  expect_near(run(section, largest_id, {1, 0, 2, 4}), one);
  EXPECT_EQ(zero.losses, run(section, largest_id, {4, 3, 2, 1, true}).losses);
}

TEST(FamilyStages, WorldModelsAreBitwiseEqualOnFourRanks) {
  expect_stages_agree({{"family", "world_model"}, {"size", "tiny"}, {"rollout_steps", 2}}, 1);
}

TEST(FamilyStages, DecodersAreBitwiseEqualOnFourRanks) {
  expect_stages_agree({{"family", "decoder"},
                       {"size", "tiny"},
                       {"vocab", 512},
                       {"hidden", 64},
                       {"layers", 2},
                       {"ffn", 176},
                       {"head_dim", 16},
                       {"sequence_length", 32}},
                      512);
}

}  // namespace
}  // namespace vitrine::testing

// What ranks record of their collectives is what the schedule promised, and not more than ZeRO's
// volumes.
#include <gtest/gtest.h>

#include "core/json.h"
#include "models/registry.h"
#include "support/engine_harness.h"

namespace vitrine::testing {
namespace {

constexpr int kRanks = 4, kSteps = 2;

BuiltModel decoder(int64_t micro_batch) {
  return build_model(
      parse_json(R"({"family": "decoder", "vocab": 70, "hidden": 24, "layers": 2, "heads": 2,
                                    "ffn": 37, "max_positions": 16, "sequence_length": 9,
                                    "tied_embeddings": true})",
                 "model"),
      {micro_batch, 0});
}
// Two passes, so that blocks are used twice a micro-batch.
BuiltModel world_model(int64_t micro_batch) {
  return build_model(
      parse_json(R"({"family": "world_model", "size": "tiny", "height": 8, "width": 8,
                                    "hidden": 24, "heads": 2, "ffn": 40, "encoder": "linear",
                                    "rollout_steps": 2})",
                 "model"),
      {micro_batch, 0});
}

// Any values of the batch's types.
OwnedBatch any_batch(const BatchTypes& types, uint64_t seed) {
  OwnedBatch batch;
  for (const auto& [name, type] : types) {
    batch.data.emplace_back(name, std::vector<std::byte>(static_cast<size_t>(type.bytes())));
    const Philox random(seed, stream_of(name));
    auto* data = batch.data.back().second.data();
    for (int64_t i = 0; i < type.shape.elements(); ++i) {
      const auto at = static_cast<uint64_t>(i);
      if (type.dtype == DType::kI32) {
        reinterpret_cast<int32_t*>(data)[i] = static_cast<int32_t>(random.below(5, at));
      } else {
        reinterpret_cast<float*>(data)[i] = static_cast<float>(random.uniform(at));
      }
    }
  }
  for (size_t i = 0; i < types.size(); ++i) {
    batch.views.emplace_back(
        types[i].first,
        TensorView{batch.data[i].second.data(), types[i].second.shape, types[i].second.dtype});
  }
  return batch;
}

struct Volume {
  int64_t state_elements = 0;  // of gradients and parameters, all ranks, a step
  int64_t parameters = 0;
};

// Trains with a recorder and checks every rank's record against its schedule.
Volume recorded_volume(const std::function<BuiltModel(int64_t)>& build,
                       int stage,
                       int64_t accumulation) {
  const Strategy strategy = toy_strategy(kRanks, stage, accumulation);
  Volume volume;
  std::mutex mutex;
  on_ranks(kRanks, [&](int rank, World* world) {
    RecorderOptions options;
    options.wait = options.warmup = 0;
    options.active = kSteps;
    Recorder recorder(rank, kRanks, options);
    EngineOptions engine_options;
    engine_options.strategy = strategy;
    BuiltModel built = build(strategy.micro_batch);
    const BatchTypes types = built.batch;
    const auto engine = initialize(std::move(built.model), types, engine_options, world, &recorder);
    OwnedBatch batch;
    bool ended = false;
    for (int step = 0; step < kSteps; ++step) {
      recorder.begin_step(step);
      engine->train_step([&](int micro) -> BatchViews {
        batch = any_batch(types, static_cast<uint64_t>((step * 8 + micro) * kRanks + rank));
        return batch.views;
      });
      ended = recorder.end_step();
    }
    ASSERT_TRUE(ended);
    const RankTimeline timeline = recorder.take();
    EXPECT_EQ(timeline.info.at("recorder.dropped"), "0");
    std::vector<int64_t> sent(kSteps), control(kSteps);
    for (size_t i = 0; i < timeline.spans.size(); ++i) {
      if (timeline.spans.collective[i] < 0) continue;
      const Collective& collective =
          timeline.collectives[static_cast<size_t>(timeline.spans.collective[i])];
      const auto step = static_cast<size_t>(timeline.spans.step[i]);
      ASSERT_LT(step, static_cast<size_t>(kSteps));
      sent[step] += collective.sent_bytes;
      if (timeline.spans.kind[i] == SpanKind::kCollective) control[step] += collective.sent_bytes;
    }
    const TrafficCount promised = engine->schedule().traffic();
    for (size_t step = 0; step < kSteps; ++step) {
      EXPECT_EQ(sent[step], promised.total())
          << "rank " << rank << ", stage " << stage << ", step " << step;
      EXPECT_EQ(control[step], promised.control_bytes);
    }
    const std::lock_guard lock(mutex);
    volume.state_elements += (sent[0] - control[0]) / 4;
    volume.parameters = engine->store().table().total_elements;
  });
  return volume;
}

// (N - 1) / N of 2P, 2P, (A + 1) P and 3AP elements a rank: over all ranks, (N - 1) times as much.
void expect_zero_volumes(const std::function<BuiltModel(int64_t)>& build, bool chain) {
  for (const int64_t a : {1, 2}) {
    const int64_t factor[] = {2, 2, a + 1, 3 * a};
    for (int stage = 0; stage <= 3; ++stage) {
      const Volume volume = recorded_volume(build, stage, a);
      const int64_t bound = factor[stage] * volume.parameters * (kRanks - 1);
      if (stage < 3) {
        EXPECT_EQ(volume.state_elements, bound) << "stage " << stage << ", accumulation " << a;
      } else if (chain) {
        // Less than the bound: the last block's weights stay for its backward, tables are not read
        // there.
        EXPECT_LE(volume.state_elements, bound) << "accumulation " << a;
        EXPECT_GT(volume.state_elements, 2 * a * volume.parameters * (kRanks - 1));
      } else {
        // Two uses of each unit a pass: gathered at most once a use, reduced once.
        EXPECT_LE(volume.state_elements, 5 * a * volume.parameters * (kRanks - 1))
            << "accumulation " << a;
      }
    }
  }
}

TEST(Traffic, OfTheDecoderIsTheScheduleAndZeROsVolume) { expect_zero_volumes(decoder, true); }

TEST(Traffic, OfTheUnrolledWorldModelIsTheSchedule) { expect_zero_volumes(world_model, false); }

}  // namespace
}  // namespace vitrine::testing

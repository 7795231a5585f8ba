// The memory that the planner replays on a schedule is what the engine's ledger shows after real
// steps: to the byte whatever lanes do, for pipelines within its two orders.
#include "plan/engine_memory.h"

#include <gtest/gtest.h>

#include "core/json.h"
#include "models/registry.h"
#include "support/engine_harness.h"

namespace vitrine::testing {
namespace {

struct Setting {
  const char* family;
  int data = 1, pipeline = 1, stage = 0;
  bool recompute = false, overlap = false;
  int64_t accumulation = 1;
  PipelineOrder order = PipelineOrder::k1F1B;
  DType states = DType::kF32;
};

std::string words(const Setting& s, int rank) {
  return std::string(s.family) + ", data " + std::to_string(s.data) + ", pipeline " +
         std::to_string(s.pipeline) + ", stage " + std::to_string(s.stage) +
         (s.recompute ? ", recompute" : "") + (s.overlap ? ", overlap" : "") + ", accumulation " +
         std::to_string(s.accumulation) + ", rank " + std::to_string(rank);
}

// Small enough that a step takes milliseconds; units of several sizes, tied embeddings.
BuiltModel small_model(const std::string& family) {
  BuildOptions options;
  options.micro_batch = 2;
  const Json section = family == "decoder" ? Json{{"family", family},
                                                  {"size", "tiny"},
                                                  {"hidden", 32},
                                                  {"heads", 2},
                                                  {"kv_heads", 2},
                                                  {"head_dim", 16},
                                                  {"ffn", 48},
                                                  {"vocab", 101},
                                                  {"layers", 3},
                                                  {"sequence_length", 16},
                                                  {"tied_embeddings", false}}
                                           : Json{{"family", family},
                                                  {"size", "tiny"},
                                                  {"height", 8},
                                                  {"width", 8},
                                                  {"hidden", 32},
                                                  {"heads", 1},
                                                  {"head_dim", 32},
                                                  {"ffn", 48},
                                                  {"action_count", 5}};
  return build_model(section, options);
}

Strategy strategy_of(const Setting& s) {
  Strategy strategy;
  strategy.mesh.data = s.data;
  strategy.mesh.pipeline = s.pipeline;
  strategy.shard = Sharding::stage(s.stage);
  strategy.pipeline_order = s.order;
  strategy.recompute = s.recompute;
  strategy.micro_batch = 2;
  strategy.accumulation = s.accumulation;
  strategy.compute_dtype = DType::kBF16;
  strategy.master_dtype = strategy.moment_dtype = s.states;
  strategy.persistence_threshold = 100;
  strategy.reduce_bucket = strategy.gather_bucket = 12'000;  // several buckets, some of many units
  strategy.overlap = s.overlap;
  return strategy;
}

// One batch of zeros in the model's shapes: what flows does not change what is held.
OwnedBatch zero_batch(const BatchTypes& types) {
  OwnedBatch batch;
  for (const auto& [name, type] : types) {
    batch.data.emplace_back(name, std::vector<std::byte>(static_cast<size_t>(type.bytes())));
    batch.views.emplace_back(name,
                             TensorView{batch.data.back().second.data(), type.shape, type.dtype});
  }
  return batch;
}

void expect_ledger_as_replayed(const Setting& setting) {
  const Strategy strategy = strategy_of(setting);
  on_ranks(strategy.mesh.world(), [&](int rank, World* world) {
    BuiltModel built = small_model(setting.family);
    const OwnedBatch batch = zero_batch(built.batch);
    EngineOptions options;
    options.strategy = strategy;
    const auto engine = initialize(std::move(built.model), built.batch, options, world);
    const auto step = [&] { engine->train_step([&](int) { return batch.views; }); };
    step();
    engine->ledger().reset_peak();
    step();
    const Graph& graph = engine->graph();
    const Schedule& schedule = engine->schedule();
    const EngineMemory prompt = engine_memory(graph, strategy, schedule, prompt_order(schedule));
    const EngineMemory late = engine_memory(graph, strategy, schedule, late_order(schedule));
    EXPECT_GE(prompt.peak_action, 0);
    for (size_t c = 0; c < kMemoryCategories; ++c) {
      const auto category = static_cast<MemoryCategory>(c);
      const int64_t held = engine->ledger().peak(category);
      SCOPED_TRACE(std::string(memory_category_name(category)) + ": " + words(setting, rank));
      if (setting.pipeline > 1) {
        EXPECT_GE(held, std::min(prompt.peak[c], late.peak[c]));
        EXPECT_LE(held, std::max(prompt.peak[c], late.peak[c]));
      } else {
        EXPECT_EQ(held, prompt.peak[c]);
        EXPECT_EQ(held, late.peak[c]);
        EXPECT_EQ(engine->ledger().at_peak()[c], prompt.at_peak[c]);
      }
    }
    if (setting.pipeline == 1) {
      EXPECT_EQ(engine->ledger().peak(), prompt.peak_bytes) << words(setting, rank);
      EXPECT_EQ(late.peak_bytes, prompt.peak_bytes) << words(setting, rank);
    }
  });
}

TEST(EngineMemory, IsTheLedgersToTheByteWithoutOverlap) {
  for (const char* family : {"decoder", "world_model"}) {
    for (const int ranks : {1, 2, 4}) {
      for (int stage = 0; stage <= 3; stage += ranks > 1 ? 1 : 3) {
        expect_ledger_as_replayed({family, ranks, 1, stage});
        expect_ledger_as_replayed({family, ranks, 1, stage, true, false, 2});
      }
    }
  }
}

TEST(EngineMemory, CountsBf16MastersAndMoments) {
  for (int stage = 0; stage <= 3; ++stage) {
    Setting setting{"decoder", 2, 1, stage};
    setting.states = DType::kBF16;
    expect_ledger_as_replayed(setting);
  }
}

// Three ranks cut units into pieces of different sizes, which are exchanged another way.
TEST(EngineMemory, CountsUnequalPieces) {
  for (int stage = 0; stage <= 3; ++stage) expect_ledger_as_replayed({"decoder", 3, 1, stage});
}

TEST(EngineMemory, IsTheLedgersToTheByteWhereLanesOverlap) {
  for (const char* family : {"decoder", "world_model"}) {
    for (int stage = 0; stage <= 3; ++stage) {
      for (const int64_t accumulation : {1, 3}) {
        expect_ledger_as_replayed({family, 2, 1, stage, false, true, accumulation});
        expect_ledger_as_replayed({family, 3, 1, stage, true, true, accumulation});
      }
    }
  }
}

TEST(EngineMemory, BoundsTheLedgerOfPipelines) {
  for (const char* family : {"decoder", "world_model"}) {
    for (const auto order : {PipelineOrder::kGPipe, PipelineOrder::k1F1B}) {
      for (const bool recompute : {false, true}) {
        expect_ledger_as_replayed({family, 1, 2, 0, recompute, true, 4, order});
        expect_ledger_as_replayed({family, 2, 2, 1, recompute, true, 3, order});
      }
    }
  }
}

// The embedding's backward reads no activation but its ids: what is left at the end of the step
// is what was there before it.
TEST(EngineMemory, OfAStepIsLetGoByItsEnd) {
  Setting setting{"decoder", 2, 1, 3};
  const Strategy strategy = strategy_of(setting);
  const BuiltModel built = small_model(setting.family);
  const ParameterTable table = make_parameter_table(built.model, strategy);
  const Graph graph = compile_graph(built.model, table, built.batch, strategy);
  const Schedule schedule = build_schedule(graph, strategy, 1);
  for (const auto& order : {prompt_order(schedule), late_order(schedule)}) {
    const EngineMemory memory = engine_memory(graph, strategy, schedule, order);
    ASSERT_EQ(memory.curve.size(), 2 * schedule.actions.size());
    EXPECT_EQ(memory.curve.back(), memory.between_steps);
  }
}

}  // namespace
}  // namespace vitrine::testing

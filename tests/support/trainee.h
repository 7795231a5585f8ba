// An engine of one rank on a model of the registry, with the batches it trains on.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/json.h"
#include "gpu/gpu.h"
#include "models/registry.h"
#include "ops/gpu/precision.h"
#include "support/engine_harness.h"

namespace vitrine::testing {

inline constexpr int64_t kMicroBatch = 2;
inline constexpr double kLearningRate = 3e-4;

// A model of the registry, or the toy of odd sizes when `section` is empty.
struct Subject {
  const char* name;
  const char* section;
  int64_t ids;
  Fp8Linears fp8 = Fp8Linears::kOff;
};

inline void PrintTo(const Subject& subject, std::ostream* out) { *out << subject.name; }

inline constexpr Subject kSubjects[] = {
    {"Decoder",
     R"({"family": "decoder", "size": "tiny", "vocab": 512, "layers": 2, "kv_heads": 2,
         "qkv_bias": true, "sequence_length": 64, "loss_chunk_rows": 50})",
     512},
    {"World", R"({"family": "world_model", "size": "tiny", "rollout_steps": 2})", 5},
    {"WorldWithRotary",
     R"({"family": "world_model", "size": "tiny", "positions": "rope", "qk_norm": true})",
     5},
    {"Toy", "", kToyVocab}};

struct Built {
  Model model;
  BatchTypes batch;
};

inline Built build(const Subject& subject) {
  if (!*subject.section) return {toy_decoder(2, true, kToyVocab), toy_batch(kMicroBatch)};
  BuildOptions options;
  options.micro_batch = kMicroBatch;
  options.fp8 = subject.fp8;
  BuiltModel built = build_model(parse_json(subject.section, subject.name), options);
  return {std::move(built.model), std::move(built.batch)};
}

// Skips without a GPU; equal runs give equal bits.
class DeterministicGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string why = why_no_gpu();
    if (!why.empty()) GTEST_SKIP() << why;
    gpu::set_deterministic(true);
  }
  void TearDown() override { gpu::set_deterministic(false); }
};

using Parameters = std::map<std::string, std::vector<float>>;

inline Parameters parameters_of(Engine& engine) {
  ShardStore& store = engine.store();
  Parameters all;
  for (int u = 0; u < static_cast<int>(store.table().units.size()); ++u) {
    std::vector<float>& values = all[store.table().units[static_cast<size_t>(u)].name];
    values.resize(static_cast<size_t>(store.updated(u).size()));
    engine.ledger().device().download(
        values.data(), store.state(u, OptimizerState::kMaster).data, values.size() * sizeof(float));
  }
  return all;
}

struct Trained {
  std::vector<double> losses, norms;
  Parameters parameters;
  bool operator==(const Trained&) const = default;
};

// An engine with its stream of batches; the batch of a micro-step follows from its number.
class Trainee {
 public:
  Trainee(const Subject& subject,
          const Execution& execution,
          const Strategy& strategy,
          int64_t max_bad_steps = 20,
          double loss_scale = 1024,
          Recorder* recorder = nullptr)
      : ids_(subject.ids) {
    Built built = build(subject);
    types_ = built.batch;
    EngineOptions options;
    options.execution = execution;
    options.strategy = strategy;
    options.optimizer.lr = kLearningRate;
    options.schedule.shape = LearningRateSchedule::Shape::kConstant;
    options.max_bad_steps = max_bad_steps;
    options.scaler.scale = loss_scale;
    engine_ = initialize(std::move(built.model), types_, options, nullptr, recorder);
  }

  Engine& engine() { return *engine_; }
  // Floats of batches are this from now on.
  void poison(float value) { poison_ = value; }

  // Of micro-batch number `place`.
  OwnedBatch batch(int64_t place) const {
    OwnedBatch batch;
    for (const auto& [name, type] : types_) {
      const Philox random(11, static_cast<uint64_t>(place) * 16 + batch.data.size());
      batch.data.emplace_back(name, std::vector<std::byte>(static_cast<size_t>(type.bytes())));
      const TensorView view{batch.data.back().second.data(), type.shape, type.dtype};
      for (int64_t i = 0; i < view.elements(); ++i) {
        const auto at = static_cast<uint64_t>(i);
        if (type.dtype == DType::kI32) {
          view.as<int32_t>()[i] =
              static_cast<int32_t>(random.below(static_cast<uint64_t>(ids_), at));
        } else {
          view.as<float>()[i] = poison_ != 0 ? poison_ : static_cast<float>(random.uniform(at));
        }
      }
    }
    for (size_t f = 0; f < types_.size(); ++f) {
      const TensorType& type = types_[f].second;
      batch.views.emplace_back(types_[f].first,
                               TensorView{batch.data[f].second.data(), type.shape, type.dtype});
    }
    return batch;
  }

  // The engine may ask for the next step's first micro-batch as well; `refuse_early` fails then.
  void ask_ahead(bool refuse_early) { ahead_ = true, refuse_early_ = refuse_early; }
  int asked_early() const { return asked_early_; }

  StepReport step() {
    OwnedBatch now;
    const auto batch_of = [&](int micro) -> BatchViews {
      const int64_t count = engine_->strategy().accumulation;
      if (micro == count) {
        ++asked_early_;
        if (refuse_early_) throw ConfigError("not made yet");
      }
      now = batch(engine_->steps_done() * count + micro);
      return now.views;
    };
    return engine_->train_step(batch_of, 0, 0, 0, ahead_);
  }

  Trained train(int steps) {
    Trained trained;
    for (int i = 0; i < steps; ++i) {
      const StepReport report = step();
      EXPECT_FALSE(report.skipped);
      trained.losses.push_back(report.output.loss);
      trained.norms.push_back(report.output.gradient_norm);
    }
    trained.parameters = parameters_of(*engine_);
    return trained;
  }

 private:
  int64_t ids_;
  BatchTypes types_;
  float poison_ = 0;
  bool ahead_ = false, refuse_early_ = false;
  int asked_early_ = 0;
  std::unique_ptr<Engine> engine_;
};

inline Strategy strategy_of(DType dtype = DType::kF32) {
  Strategy strategy = toy_strategy(1, 0, 2);
  strategy.compute_dtype = dtype;
  return strategy;
}

}  // namespace vitrine::testing

// Gradients and AdamW steps of whole models against PyTorch's (tools/make_engine_golden.py).
#include <gtest/gtest.h>

#include <cmath>

#include "core/json.h"
#include "models/registry.h"
#include "run/engine.h"
#include "support/tolerance.h"

namespace vitrine {
namespace {

// The formulas of the golden maker.
double noise(int64_t i, int phase) {
  const double u = std::sin(12.9898 * static_cast<double>(i + 1) + phase) * 43758.5453;
  return u - std::floor(u) - 0.5;
}

int phase_of(const std::string& name) {
  int sum = 0;
  for (const char c : name) sum += c;
  return sum % 97;
}

float starting_value(const UnitParameter& p, int64_t i) {
  const std::string last = p.name.substr(p.name.rfind('.') + 1);
  const bool norm =
      last.find("norm") != std::string::npos && last.find("bias") == std::string::npos;
  const double base = norm ? 1 : last == "gain" ? 5 : 0;
  const int rank = p.shape.rank();
  const double scale = rank == 1 ? 0.5 : 1.6 / std::sqrt(static_cast<double>(p.shape[rank - 1]));
  return static_cast<float>(base + scale * noise(i, phase_of(p.name)));
}

class TorchCase {
 public:
  TorchCase(const Json& golden, const Json& test) {
    Strategy strategy;
    strategy.micro_batch = golden["micro_batch"];
    BuiltModel built = build_model(test["model"], {strategy.micro_batch, 0});
    for (const auto& [name, type] : built.batch) {
      data_.emplace_back(static_cast<size_t>(type.bytes()));
      views_.emplace_back(name, TensorView{data_.back().data(), type.shape, type.dtype});
    }
    section_ = test["model"];
    EngineOptions options;
    options.strategy = strategy;
    options.optimizer.lr = golden["lr"];
    options.optimizer.weight_decay = golden["weight_decay"];
    options.optimizer.clip = golden["clip"];
    options.schedule.shape = LearningRateSchedule::Shape::kConstant;
    const BatchTypes types = built.batch;
    engine_ = initialize(std::move(built.model), types, options);
    for (int u = 0; u < units(); ++u) {
      for (const UnitParameter& p : unit(u).parameters) {
        float* values = engine_->store().state(u, OptimizerState::kMaster).as<float>() + p.offset;
        for (int64_t i = 0; i < p.elements; ++i) values[i] = starting_value(p, i);
      }
    }
  }

  const BatchViews& batch(int64_t step) {
    for (auto& [name, view] : views_) {
      const int phase = (name == "frames" ? 7 : phase_of(name)) + 31 * static_cast<int>(step);
      const int64_t below = name == "actions"  ? section_["action_count"].get<int64_t>()
                            : name == "labels" ? section_["classes"].get<int64_t>()
                                               : section_.value("vocab", int64_t{0});
      for (int64_t i = 0; i < view.elements(); ++i) {
        if (view.dtype == DType::kF32) {
          view.as<float>()[i] = static_cast<float>(noise(i, phase) + 0.5);
        } else {
          view.as<int32_t>()[i] = static_cast<int32_t>(
              std::floor((noise(i, phase) + 0.5) * static_cast<double>(below)));
        }
      }
    }
    return views_;
  }

  Engine& engine() { return *engine_; }
  int units() const { return static_cast<int>(engine_->store().table().units.size()); }
  const Unit& unit(int u) const { return engine_->store().table().units[static_cast<size_t>(u)]; }

 private:
  std::vector<std::vector<std::byte>> data_;
  BatchViews views_;
  Json section_;
  std::unique_ptr<Engine> engine_;
};

// |got - expected| over |expected|, both as vectors.
double distance(const float* got, const std::vector<double>& expected) {
  double error = 0, size = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    error += (got[i] - expected[i]) * (got[i] - expected[i]);
    size += expected[i] * expected[i];
  }
  return std::sqrt(error / size);
}

class Torch : public ::testing::Test {
 protected:
  const Json golden_ = read_json_file("tests/run/golden/engine.json");
};

TEST_F(Torch, EveryGradientOfDecoderWorldModelAndVisionTransformerIsPyTorchs) {
  ASSERT_EQ(golden_["cases"].size(), 3u);
  for (const Json& test : golden_["cases"]) {
    const std::string family = test["model"]["family"];
    TorchCase ours(golden_, test);
    const double loss = ours.engine().forward(ours.batch(0));
    EXPECT_NEAR(loss / test["losses"][0].get<double>(), 1, 1e-6) << family;
    ours.engine().backward(loss);
    size_t compared = 0;
    for (int u = 0; u < ours.units(); ++u) {
      const auto* gradients = static_cast<const float*>(ours.engine().store().full_gradients(u));
      for (const UnitParameter& p : ours.unit(u).parameters) {
        const auto expected = test["gradients"].at(p.name).get<std::vector<double>>();
        ASSERT_EQ(static_cast<int64_t>(expected.size()), p.elements) << p.name;
        EXPECT_LE(distance(gradients + p.offset, expected), test::kGolden)
            << family << ", " << p.name;
        ++compared;
      }
    }
    EXPECT_EQ(compared, test["gradients"].size()) << family;
  }
}

TEST_F(Torch, TwentyAdamWStepsHavePyTorchsLosses) {
  for (const Json& test : golden_["cases"]) {
    const std::string family = test["model"]["family"];
    TorchCase ours(golden_, test);
    ASSERT_EQ(test["losses"].size(), 20u);
    for (size_t step = 0; step < 20; ++step) {
      const StepReport report =
          ours.engine().train_step([&](int) { return ours.batch(static_cast<int64_t>(step)); });
      // Four digits: AdamW divides by the root of a gradient's square, which enlarges fp32's
      // rounding.
      EXPECT_NEAR(report.output.loss / test["losses"][step].get<double>(), 1, 5e-5)
          << family << ", step " << step;
    }
  }
}

}  // namespace
}  // namespace vitrine

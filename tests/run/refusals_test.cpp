// Models and calls that could only train on wrong numbers are refused with a sentence that says
// what to do.
#include <gtest/gtest.h>

#include <thread>

#include "comm/communicator.h"
#include "core/error.h"
#include "run/engine.h"
#include "support/scratch.h"
#include "support/toy_models.h"
#include "support/train_harness.h"

namespace vitrine::testing {
namespace {

constexpr int64_t kVocab = 53, kLength = 11;
const BatchTypes kTypes = {{"tokens", {{2, kLength}, DType::kI32}},
                           {"targets", {{2, kLength}, DType::kI32}}};

EngineOptions options(int data, int pipeline = 1) {
  EngineOptions options;
  options.strategy.mesh.data = data;
  options.strategy.mesh.pipeline = pipeline;
  options.strategy.micro_batch = 2;
  return options;
}

// Runs `body(rank, world)` on two ranks and gives rank 0's ConfigError.
std::string refusal_on_two_ranks(const std::function<void(int, World*)>& body) {
  auto worlds = make_local_worlds(2, std::chrono::seconds(20));
  std::string message;
  std::thread other([&] {
    try {
      body(1, worlds[1].get());
    } catch (const Error&) {
    }
  });
  message = message_of<ConfigError>([&] { body(0, worlds[0].get()); });
  other.join();
  return message;
}

TEST(Refusals, ForwardUnderAPipelinePointsToTrainStep) {
  const std::string message = refusal_on_two_ranks([](int, World* world) {
    auto engine = initialize(toy_decoder(2, false, kVocab), kTypes, options(1, 2), world);
    engine->forward(token_batch(kVocab, kLength, 0, 2, 1).views);
  });
  EXPECT_NE(message.find("train_step"), std::string::npos) << message;
}

TEST(Refusals, RanksWithOtherBucketSizesAreToldSoBeforeTheFirstStep) {
  const std::string message = refusal_on_two_ranks([](int rank, World* world) {
    EngineOptions mine = options(2);
    mine.strategy.reduce_bucket = rank == 0 ? 1000 : 2000;
    initialize(toy_decoder(2, false, kVocab), kTypes, mine, world);
  });
  EXPECT_NE(message.find("rank 1 was given another"), std::string::npos) << message;
}

// Takes one value through two ports.
struct TwoPorts : Block {
  std::string kind() const override { return "two_ports"; }
  void declare(ParameterList& p) const override {
    p.add("weight", {kVocab, 24}, Init::normal(0.1));
  }
  void forward(TapeBuilder& t) const override {
    const Value sum = nn::add(t, t.input("a"), t.input("b"));
    t.output("loss", nn::linear_cross_entropy(t, sum, t.parameter("weight"), t.input("targets")));
  }
};

TEST(Refusals, OneValueWithGradientThroughTwoPortsIsRefused) {
  Model model;
  model.add("embed", std::make_unique<ToyEmbed>(kVocab, 24), {{"tokens", "batch.tokens"}});
  model.add("head",
            std::make_unique<TwoPorts>(),
            {{"a", "embed.residual"}, {"b", "embed.residual"}, {"targets", "batch.targets"}});
  model.add_loss("head.loss");
  const std::string message =
      message_of<ConfigError>([&] { initialize(std::move(model), kTypes, options(1)); });
  EXPECT_NE(message.find("use the value twice"), std::string::npos) << message;
}

// Ties a parameter to another of the same block.
struct TiedToItself : Block {
  std::string kind() const override { return "tied_to_itself"; }
  void declare(ParameterList& p) const override {
    p.add("table", {kVocab, 24}, Init::normal(0.1));
    p.tie("weight", {kVocab, 24}, "all.table");
  }
  void forward(TapeBuilder& t) const override {
    const Value x = nn::embedding(t, t.input("tokens"), t.parameter("table"));
    t.output("loss", nn::linear_cross_entropy(t, x, t.parameter("weight"), t.input("targets")));
  }
};

TEST(Refusals, ATieWithinOneBlockIsRefused) {
  Model model;
  model.add("all",
            std::make_unique<TiedToItself>(),
            {{"tokens", "batch.tokens"}, {"targets", "batch.targets"}});
  model.add_loss("all.loss");
  const std::string message =
      message_of<ConfigError>([&] { initialize(std::move(model), kTypes, options(1)); });
  EXPECT_NE(message.find("no earlier block"), std::string::npos) << message;
}

}  // namespace
}  // namespace vitrine::testing

// Run files: sections, overrides, refusals, and the resolved configuration.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/run_config.h"
#include "core/error.h"
#include "core/json.h"
#include "schedule/fp8_linears.h"

namespace vitrine {
namespace {

using testing::HasSubstr;

constexpr char kSmall[] = R"({
  "model": {"family": "decoder", "size": "tiny"},
  "data": {"kind": "random"},
  "train": {"steps": 10},
  "train_batch_size": 8
})";

RunConfig make(const std::vector<std::string>& overrides = {}, int world = 1) {
  return make_run_config(parse_json(kSmall, "test"), {world, overrides});
}

std::string error(const std::vector<std::string>& overrides, int world = 1) {
  try {
    make(overrides, world);
  } catch (const ConfigError& caught) {
    return caught.what();
  }
  return "";
}

TEST(RunFile, ReadsTheExamples) {
  const RunConfig world = read_run_config("examples/tiny_world.json", {2, {}});
  EXPECT_EQ(world.name, "tiny_world");
  EXPECT_EQ(world.family, "world_model");
  EXPECT_EQ(world.strategy.micro_batch, 8);
  EXPECT_EQ(world.strategy.shard.stage(), 2);
  EXPECT_DOUBLE_EQ(world.train.seconds, 60);
  EXPECT_EQ(world.train.schedule.total_steps, 0);
  EXPECT_EQ(rollout_steps_at(world.train, 0.64), 1);
  EXPECT_EQ(rollout_steps_at(world.train, 0.65), 3);
  EXPECT_EQ(rollout_steps_at(world.train, 1), 3);
  const RunConfig lm = read_run_config("examples/tiny_lm.json", {2, {}});
  EXPECT_EQ(lm.family, "decoder");
  EXPECT_EQ(lm.strategy.shard.stage(), 3);
  EXPECT_EQ(lm.strategy.persistence_threshold, 1024);
  EXPECT_EQ(lm.train.trace.active, 3);
  EXPECT_EQ(lm.train.schedule.total_steps, 40);
}

TEST(RunFile, IsTheSameAgainAfterBeingResolved) {
  const std::vector<std::vector<std::string>> variants = {
      {},
      {"bf16={\"enabled\": true}", "zero_optimization={\"stage\": 3, \"overlap_comm\": false}"},
      {"bf16.enabled=true", "fp8.enabled=true"},
      {"fp16={\"enabled\": true, \"hysteresis\": 3}", "communication_data_type=fp16"},
      {"fp16={\"enabled\": true, \"loss_scale\": 128}",
       "activation_checkpointing={\"number_checkpoints\": 2}"},
      {"scheduler={\"type\": \"WarmupCosineLR\", \"params\": {\"total_num_steps\": 500}}"},
      {"frozen=[\"embed.*\"]",
       "persistent=[\"body.0.*\"]",
       "train.seed=7",
       "train.trace={}",
       "gradient_clipping=0"},
      {"train.device=cuda", "train.deterministic=true"}};
  for (const auto& overrides : variants) {
    const std::string once = resolved_json(make(overrides, 2));
    const std::string twice = resolved_json(make_run_config(parse_json(once, "resolved"), {2, {}}));
    EXPECT_EQ(once, twice);
  }
  const RunConfig world = read_run_config("examples/tiny_world.json", {2, {}});
  EXPECT_EQ(resolved_json(make_run_config(parse_json(resolved_json(world), "resolved"), {2, {}})),
            resolved_json(world));
}

TEST(RunFile, SaysThatPersistentNamesAreOfStage3) {
  const auto remarks = [&](const std::string& stage) {
    const RunConfig config =
        make({"persistent=[\"embed.*\"]", "zero_optimization.stage=" + stage}, 2);
    return remarks_text(config.remarks, {Remark::Status::kIgnored});
  };
  EXPECT_THAT(remarks("2"), HasSubstr("persistent: only of stage 3, and this file has stage 2"));
  EXPECT_THAT(remarks("3"), ::testing::Not(HasSubstr("persistent")));
}

TEST(RunFile, TakesOverridesAsJsonOrText) {
  const RunConfig config = make({"train.steps=50",
                                 "model.layers=2",
                                 "name=trial",
                                 "train.checkpoint.every=5",
                                 "optimizer.type=AdamW",
                                 "optimizer.params.lr=1e-2"});
  EXPECT_EQ(config.train.steps, 50);
  EXPECT_FALSE(config.train.deterministic);
  EXPECT_TRUE(make({"train.deterministic=true"}).train.deterministic);
  EXPECT_EQ(config.name, "trial");
  EXPECT_EQ(config.train.checkpoint.every, 5);
  EXPECT_DOUBLE_EQ(config.optimizer.lr, 0.01);
  EXPECT_EQ(parse_json(config.model, "")["layers"], 2);
  EXPECT_THAT(error({"train.stepz=5"}), HasSubstr("train.stepz\"; did you mean \"steps\""));
  EXPECT_THAT(error({"zero_optimization.stag=2"}), HasSubstr("stage"));
  EXPECT_THAT(error({"train"}), HasSubstr("expected key=value"));
  EXPECT_THAT(error({"train..steps=5"}), HasSubstr("is empty"));
  EXPECT_THAT(error({"train_batch_size.x=5"}), HasSubstr("not an object"));
}

TEST(RunFile, TakesFp8AsPartOfBf16) {
  EXPECT_FALSE(make({"bf16.enabled=true"}).fp8);
  EXPECT_TRUE(make({"bf16.enabled=true", "fp8.enabled=true"}).fp8);
  EXPECT_FALSE(make({"fp8.enabled=false"}).fp8);
  EXPECT_THAT(error({"fp8.enabled=true"}), HasSubstr("\"bf16\": {\"enabled\": true}"));
  EXPECT_THAT(error({"fp16.enabled=true", "fp8.enabled=true"}), HasSubstr("fp8.enabled"));
  EXPECT_THAT(error({"bf16.enabled=true", "fp8.enable=true"}), HasSubstr("\"enabled\""));
}

TEST(RunFile, DecidesWhatFp8LinearsKeepByTheStrategy) {
  const auto kept = [](std::vector<std::string> keys) {
    keys.insert(keys.end(), {"bf16.enabled=true", "fp8.enabled=true"});
    const RunConfig config = make(keys);
    return fp8_linears(config.fp8, config.strategy);
  };
  EXPECT_EQ(kept({}), Fp8Linears::kAllKept);
  EXPECT_EQ(kept({"zero_optimization.stage=2"}), Fp8Linears::kAllKept);
  EXPECT_EQ(kept({"zero_optimization.stage=3"}), Fp8Linears::kInputsKept);
  EXPECT_EQ(kept({"activation_checkpointing={\"number_checkpoints\": 2}"}),
            Fp8Linears::kNothingKept);
  EXPECT_EQ(fp8_linears(false, {}), Fp8Linears::kOff);
}

TEST(RunFile, ListsEveryWrongKeyAtOnce) {
  EXPECT_THAT(error({"overlapcomm=true", "zero_optimization.stage=7", "fp16.enabled=yes"}),
              testing::AllOf(HasSubstr("overlapcomm"),
                             HasSubstr("zero_optimization.stage"),
                             HasSubstr("fp16.enabled: expected true or false")));
}

TEST(RunFile, RefusesWhatIsNotAvailableUnlessTold) {
  const std::string offload =
      R"(zero_optimization={"stage": 2, "offload_optimizer": {"device": "cpu"}})";
  EXPECT_THAT(error({offload}), testing::AllOf(HasSubstr("offload"), HasSubstr("allow_not_yet")));
  EXPECT_EQ(make({offload, "allow_not_yet=true"}).strategy.shard.stage(), 2);
}

TEST(RunFile, ChecksItsOwnSections) {
  EXPECT_THAT(error({"train.seconds=5"}), HasSubstr("either steps or seconds"));
  EXPECT_THAT(error({"train.schedule=cosin"}), HasSubstr("did you mean \"cosine\""));
  EXPECT_THAT(error({"train.steps=\"ten\""}), HasSubstr("train.steps: expected a whole number"));
  EXPECT_THAT(error({"train.rollout=[{\"until\": 1, \"steps\": 2}]"}), HasSubstr("world models"));
  EXPECT_THAT(error({"data.kind=frames", "data.path=x"}), HasSubstr("tokens or random"));
  EXPECT_THAT(error({"data.kind=tokens"}), HasSubstr("data.path is missing"));
  EXPECT_THAT(error({"data.stride=2"}), HasSubstr("data.stride"));
  EXPECT_THAT(error({"frozen=embed"}), HasSubstr("frozen: expected a list"));
  EXPECT_THAT(error({"persistent=[1]"}), HasSubstr("persistent: expected a list"));
  EXPECT_THAT(error({"train.log_every=5", "steps_per_print=5"}), HasSubstr("keep one"));
  EXPECT_THAT(error({"train.warmup_steps=5", "scheduler.type=WarmupCosineLR"}),
              HasSubstr("keep one"));
  EXPECT_THAT(error({"model.layer=2"}), HasSubstr("did you mean \"layers\""));
  for (const char* rollout : {"[]",
                              "3",
                              R"([{"until": 0.5, "steps": 1}])",
                              R"([{"until": 0.5, "steps": 1}, {"until": 0.5, "steps": 2}])"}) {
    EXPECT_THAT(error({std::string("train.rollout=") + rollout}), HasSubstr("train.rollout"))
        << rollout;
  }
}

TEST(RunFile, FitsTheMeshToTheRanks) {
  const RunConfig config = make({"mesh.pipeline=2"}, 4);
  EXPECT_EQ(config.strategy.mesh.data, 2);
  EXPECT_EQ(config.strategy.micro_batch, 4);
  EXPECT_THAT(error({"mesh.pipeline=3"}, 4), HasSubstr("the run has 4 ranks"));
  EXPECT_THAT(error({"mesh.data=4"}, 2), HasSubstr("= 4, but the run has 2 ranks"));
  EXPECT_THAT(error({"mesh.tensor=2"}, 2), HasSubstr("tensor"));
  EXPECT_THAT(error({}, 3), HasSubstr("6 or 9"));
}

TEST(RunFile, SaysThatAPlainDeepSpeedFileIsNoRun) {
  try {
    read_run_config("examples/deepspeed/zero1_bf16.json");
    FAIL();
  } catch (const ConfigError& caught) {
    EXPECT_THAT(caught.what(),
                testing::AllOf(HasSubstr("\"model\" is missing"), HasSubstr("explain")));
  }
  EXPECT_THROW(read_run_config("examples/none.json"), IoError);
  EXPECT_THROW(make_run_config(Json::array()), ConfigError);
  EXPECT_THROW(parse_json(R"({"train": {}, "train": {}})", "test"), ConfigError);
}

}  // namespace
}  // namespace vitrine

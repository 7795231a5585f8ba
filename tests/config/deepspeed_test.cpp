// DeepSpeed configurations: each key is answered, and contradictions are found.
#include "config/deepspeed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/deepspeed_keys.h"
#include "core/json.h"

namespace vitrine {
namespace {

using Status = Remark::Status;
using testing::HasSubstr;

// What is said about `key` ("" when nothing is), e.g. "ignored: only of stage 3".
std::string answer_in(const Json& file, const std::string& key, int world = 1) {
  std::string said;
  for (const Remark& remark : check_deepspeed(file, world)) {
    if (remark.key == key)
      said += std::string(remark_status_name(remark.status)) + ": " + remark.note;
  }
  return said;
}
std::string answer(const std::string& text, const std::string& key, int world = 1) {
  return answer_in(parse_json(text, "test"), key, world);
}
std::string zero(const std::string& keys) {
  return R"({"train_batch_size": 8, "zero_optimization": {)" + keys + "}}";
}

DeepSpeedSettings read(const std::string& text, int ranks = 1) {
  std::vector<Remark> remarks;
  Mesh mesh;
  mesh.data = ranks;
  const DeepSpeedSettings settings = read_deepspeed(parse_json(text, "test"), mesh, {}, remarks);
  EXPECT_EQ(remarks_text(remarks, {Status::kWrong, Status::kNotYet}), "");
  return settings;
}

TEST(DeepSpeedConfig, AnswersTheFileFullOfMistakesKeyByKey) {
  const Json file = read_json_file("examples/deepspeed/with_mistakes.json");
  EXPECT_THAT(answer_in(file, "(batch)", 6),
              testing::AllOf(HasSubstr("wrong"), HasSubstr("30 or 36")));
  EXPECT_THAT(answer_in(file, "(batch)", 4),
              HasSubstr("used: 32 = micro-batch 8 x accumulation 1 x 4"));
  EXPECT_THAT(answer_in(file, "zero_optimization.offload_optimizer.fast_readwrite"),
              testing::AllOf(HasSubstr("wrong"), HasSubstr("pipeline_read")));
  EXPECT_THAT(answer_in(file, "zero_optimization.offload_optimizer.device"), HasSubstr("not yet"));
  EXPECT_THAT(answer_in(file, "zero_optimization.stage3_max_live_parameters"),
              HasSubstr("ignored: only of stage 3, and this file has stage 2"));
  EXPECT_THAT(answer_in(file, "(precision)"), HasSubstr("fp32"));
  EXPECT_THAT(answer_in(file, "optimizer.type"), HasSubstr("AdamW"));
  EXPECT_EQ(answer_in(file, "zero_optimization.reduce_bucket_size"), "used: elements");
  // Nothing in the file goes without an answer.
  const auto remarks = check_deepspeed(file, 6);
  std::vector<std::string> keys;
  for (const Remark& remark : remarks) keys.push_back(remark.key);
  const auto expect_answers = [&](const Json& section, const std::string& prefix) {
    for (const auto& [key, value] : section.items()) {
      if (value.is_object()) continue;
      EXPECT_THAT(keys, testing::Contains(prefix + key));
    }
  };
  expect_answers(file, "");
  expect_answers(file["optimizer"]["params"], "optimizer.params.");
  expect_answers(file["zero_optimization"], "zero_optimization.");
  expect_answers(file["zero_optimization"]["offload_optimizer"],
                 "zero_optimization.offload_optimizer.");
}

TEST(DeepSpeedConfig, ReadsTheExamplesWithoutComplaint) {
  const std::string folder = "examples/deepspeed/";
  const auto one = read(read_text_file(folder + "zero1_bf16.json"), 4);
  EXPECT_EQ(one.strategy.shard.stage(), 1);
  EXPECT_EQ(one.strategy.compute_dtype, DType::kBF16);
  EXPECT_EQ(one.strategy.gradient_dtype, DType::kF32);
  EXPECT_EQ(one.strategy.global_batch(), 64);
  EXPECT_EQ(one.strategy.reduce_bucket, 50'000'000);
  EXPECT_DOUBLE_EQ(one.optimizer.lr, 3e-4);
  ASSERT_TRUE(one.schedule);
  EXPECT_EQ(one.schedule->total_steps, 10000);
  EXPECT_DOUBLE_EQ(one.schedule->final_ratio, 0.1);

  const auto two = read(read_text_file(folder + "zero2_fp16.json"), 4);
  EXPECT_EQ(two.strategy.micro_batch, 8);
  EXPECT_TRUE(two.loss_scaler.dynamic);
  EXPECT_EQ(two.loss_scaler.scale, 4096);
  EXPECT_EQ(two.loss_scaler.window, 500);
  EXPECT_EQ(two.log_every, 50);
  EXPECT_TRUE(two.comms_log);
  EXPECT_EQ(two.schedule->shape, LearningRateSchedule::Shape::kLinear);

  const auto three = read(read_text_file(folder + "zero3_bf16.json"), 8);
  EXPECT_EQ(three.strategy.shard.stage(), 3);
  EXPECT_EQ(three.strategy.max_reuse_distance, 1'000'000'000);
  EXPECT_EQ(three.strategy.prefetch_elements, Strategy{}.prefetch_elements);
  EXPECT_TRUE(three.strategy.recompute);
}

TEST(DeepSpeedConfig, NamesTheNearestKeyAtEveryLevel) {
  EXPECT_THAT(answer(R"({"train_batchsize": 8})", "train_batchsize"),
              HasSubstr("did you mean \"train_batch_size\""));
  EXPECT_THAT(answer(zero(R"("overlap_com": true)"), "zero_optimization.overlap_com"),
              HasSubstr("overlap_comm"));
  EXPECT_THAT(answer(zero(R"("offload_param": {"devise": "none"})"),
                     "zero_optimization.offload_param.devise"),
              HasSubstr("device"));
  EXPECT_THAT(answer(R"({"overlap_comm": true})", "overlap_comm"),
              HasSubstr("zero_optimization.overlap_comm"));
  EXPECT_THAT(answer(R"({"aio": {"thread_count": 2}})", "aio.thread_count"),
              HasSubstr("intra_op_parallelism"));
  EXPECT_THAT(answer(R"({"optimizer": {"type": "AdamW", "params": {"max_grad_norm": 1}}})",
                     "optimizer.params.max_grad_norm"),
              HasSubstr("gradient_clipping"));
}

TEST(DeepSpeedConfig, NamesWrongTypes) {
  EXPECT_THAT(answer(zero(R"("stage": "2")"), "zero_optimization.stage"),
              HasSubstr("wrong: expected a whole number, got \"2\""));
  EXPECT_THAT(answer(zero(R"("stage": 4)"), "zero_optimization.stage"), HasSubstr("0, 1, 2 or 3"));
  EXPECT_THAT(answer(R"({"fp16": {"enabled": 1}})", "fp16.enabled"), HasSubstr("true or false"));
  EXPECT_THAT(answer(R"({"bf16": true})", "bf16"), HasSubstr("an object"));
  EXPECT_THAT(answer(R"({"communication_data_type": "int8"})", "communication_data_type"),
              HasSubstr("fp32, fp16, bf16"));
  EXPECT_THAT(answer(R"({"fp16": {"enabled": true, "loss_scale": true}})", "fp16.loss_scale"),
              HasSubstr("expected a number, got true"));
  EXPECT_THAT(answer(zero(R"("reduce_bucket_size": 1.5)"), "zero_optimization.reduce_bucket_size"),
              HasSubstr("wrong"));
  EXPECT_EQ(check_deepspeed(Json::array(), 1).front().status, Status::kWrong);
}

TEST(DeepSpeedConfig, FindsContradictions) {
  EXPECT_THAT(answer(R"({"fp16": {"enabled": true}, "bf16": {"enabled": true}})", "bf16.enabled"),
              HasSubstr("wrong: fp16 and bf16"));
  EXPECT_THAT(answer(R"({"fp16": {"enabled": true, "loss_scale": -1}})", "fp16.loss_scale"),
              HasSubstr("at least 0"));
  EXPECT_THAT(
      answer(R"({"fp16": {"enabled": true, "loss_scale_window": 0}})", "fp16.loss_scale_window"),
      HasSubstr("over 0"));
  EXPECT_THAT(answer(R"({"fp16": {"enabled": true, "fp16_master_weights_and_grads": true}})",
                     "fp16.fp16_master_weights_and_grads"),
              HasSubstr("stages 1, 2 and 3"));
  EXPECT_THAT(answer(R"({"bf16": {"enabled": true, "bf16_optimizer_states": true}})",
                     "bf16.bf16_optimizer_states"),
              HasSubstr("needs bf16_master_weights_and_grads"));
  EXPECT_THAT(answer(R"({"bf16": {"bf16_master_weights_and_grads": true}})",
                     "bf16.bf16_master_weights_and_grads"),
              HasSubstr("only where bf16.enabled is true"));
  EXPECT_THAT(
      answer(zero(R"("stage": 1, "legacy_stage1": true)"), "zero_optimization.legacy_stage1"),
      HasSubstr("wrong"));
  EXPECT_THAT(answer(zero(R"("stage": 2, "offload_optimizer": {"device": "cpu", "ratio": 0.5})"),
                     "zero_optimization.offload_optimizer.ratio"),
              HasSubstr("only for stage 3"));
  EXPECT_THAT(answer(zero(R"("stage": 3, "offload_param": {"device": "nvme"})"),
                     "zero_optimization.offload_param.device"),
              HasSubstr("needs nvme_path"));
  EXPECT_THAT(answer(zero(R"("stage": 3, "zero_hpz_partition_size": 3)"),
                     "zero_optimization.zero_hpz_partition_size",
                     8),
              HasSubstr("3 does not divide the 8"));
  EXPECT_THAT(
      answer(zero(R"("stage": 3, "mics_shard_size": 3)"), "zero_optimization.mics_shard_size", 8),
      HasSubstr("does not divide"));
  EXPECT_THAT(
      answer(R"({"amp": {"enabled": true}, "zero_optimization": {"stage": 1}})", "amp.enabled"),
      HasSubstr("wrong"));
}

TEST(DeepSpeedConfig, SaysNotYetToWhatWouldChangeNumbersOrMemory) {
  for (const auto& [text, key] : std::vector<std::pair<std::string, std::string>>{
           {zero(R"("zero_quantized_weights": true)"), "zero_optimization.zero_quantized_weights"},
           {zero(R"("stage": 3, "mics_shard_size": 4)"), "zero_optimization.mics_shard_size"},
           {zero(R"("cpu_offload": true)"), "zero_optimization.cpu_offload"},
           {R"({"gradient_allreduce_op": "sum"})", "gradient_allreduce_op"},
           {R"({"optimizer": {"type": "Lamb"}})", "optimizer.type"},
           {R"({"optimizer": {"type": "Adam", "params": {"adam_w_mode": false}}})",
            "optimizer.params.adam_w_mode"},
           {R"({"scheduler": {"type": "OneCycle"}})", "scheduler.type"},
           {R"({"scheduler": {"type": "WarmupLR", "params": {}}})", "scheduler.params.warmup_type"},
           {R"({"curriculum_learning": {"enabled": true}})", "curriculum_learning"},
           {R"({"bf16": {"enabled": true}, "communication_data_type": "fp16"})",
            "communication_data_type"}}) {
    EXPECT_THAT(answer(text, key, 4), HasSubstr("not yet")) << text;
  }
}

TEST(DeepSpeedConfig, SaysNothingAgainstKeysThatAskForNothing) {
  for (const auto& [text, key] : std::vector<std::pair<std::string, std::string>>{
           {zero(R"("zero_quantized_weights": false)"), "zero_optimization.zero_quantized_weights"},
           {zero(R"("offload_optimizer": {"device": "none"})"),
            "zero_optimization.offload_optimizer.device"},
           {zero(R"("zero_hpz_partition_size": 1)"), "zero_optimization.zero_hpz_partition_size"},
           {R"({"elasticity": {"enabled": false}})", "elasticity"},
           {R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_type": "linear"}}})",
            "scheduler.params.warmup_type"},
           {R"({"optimizer": {"type": "AdamW", "params": {"lr": "auto"}}})",
            "optimizer.params.lr"}}) {
    EXPECT_THAT(answer(text, key), testing::StartsWith("used")) << text;
  }
  // Under type AdamW DeepSpeed itself does not look at adam_w_mode.
  EXPECT_THAT(answer(R"({"optimizer": {"type": "AdamW", "params": {"adam_w_mode": false}}})",
                     "optimizer.params.adam_w_mode"),
              testing::StartsWith("ignored"));
}

TEST(DeepSpeedConfig, SaysBothDefaultsWhereAFileHasAuto) {
  EXPECT_THAT(
      answer(zero(R"("reduce_bucket_size": "auto")"), "zero_optimization.reduce_bucket_size"),
      testing::AllOf(HasSubstr("1000000 elements here"), HasSubstr("500000000")));
}

TEST(DeepSpeedConfig, MovesDeprecatedKeys) {
  EXPECT_EQ(
      read(R"({"train_batch_size": 2, "bfloat16": {"enabled": true}})").strategy.compute_dtype,
      DType::kBF16);
  const auto old =
      read(R"({"train_batch_size": 2, "zero_optimization": true, "allgather_size": 2000})")
          .strategy;
  EXPECT_EQ(old.shard.stage(), 1);
  EXPECT_EQ(old.gather_bucket, 2000);
  EXPECT_THAT(answer(R"({"bfloat16": {}, "bf16": {}})", "bfloat16"), HasSubstr("wrong"));
  EXPECT_THAT(answer(zero(R"("stage3_gather_fp16_weights_on_model_save": true,
                            "stage3_gather_16bit_weights_on_model_save": true)"),
                     "zero_optimization.stage3_gather_fp16_weights_on_model_save"),
              HasSubstr("keep one"));
  EXPECT_THAT(answer(zero(R"("cpu_offload": true, "offload_optimizer": {"device": "cpu"})"),
                     "zero_optimization.cpu_offload"),
              HasSubstr("keep one"));
}

TEST(DeepSpeedConfig, TakesGradientsInTheDtypeAskedFor) {
  EXPECT_EQ(read(R"({"train_batch_size": 2, "bf16": {"enabled": true},
                     "communication_data_type": "bf16"})")
                .strategy.gradient_dtype,
            DType::kBF16);
  EXPECT_EQ(read(R"({"train_batch_size": 2, "fp16": {"enabled": true},
                     "data_types": {"grad_accum_dtype": "fp16"}})")
                .strategy.gradient_dtype,
            DType::kF16);
}

TEST(DeepSpeedConfig, TableHasEachKeyOnceUnderASectionThatExists) {
  std::vector<std::string> seen;
  for (const KeyRule& rule : deepspeed_keys()) {
    const std::string path = rule.path;
    EXPECT_THAT(seen, testing::Not(testing::Contains(path)));
    seen.push_back(path);
    const size_t dot = path.rfind('.');
    if (dot == std::string::npos) continue;
    const KeyRule* section = find_deepspeed_key(path.substr(0, dot));
    ASSERT_TRUE(section) << path;
    EXPECT_EQ(section->type, KeyType::kSection) << path;
  }
}

}  // namespace
}  // namespace vitrine

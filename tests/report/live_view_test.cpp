// A moment of a run and its GPUs as text, JSON and for Prometheus, from samples made up.
#include "report/live_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "core/error.h"
#include "core/json.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

using testing::HasSubstr;
using testing::Not;

LiveView sample() {
  LiveView view;
  view.run = "runs/demo";
  view.total_steps = 200;
  view.metrics = MetricsLine{119,
                             1000.0,
                             {{"loss", 2.3125},
                              {"tokens_per_s", 48200},
                              {"step_seconds", 0.41},
                              {"grad_norm", GpuSample::kUnknown}}};
  view.now_s = 1002.0;
  GpuSample gpu;
  gpu.index = 1;
  gpu.name = "NVIDIA \"H200\"";
  gpu.busy = 0.97;
  gpu.used_bytes = 100e9;
  gpu.total_bytes = 150e9;
  gpu.power_w = 640;
  view.gpus = {gpu};
  return view;
}

TEST(LiveView, TheTextSaysWhatIsKnownAndNothingElse) {
  const std::string text = live_text(sample());
  EXPECT_THAT(text, HasSubstr("runs/demo: step 120/200  loss 2.312"));
  EXPECT_THAT(text, HasSubstr("tokens/s"));
  EXPECT_THAT(text, HasSubstr("2.00 s ago"));
  EXPECT_THAT(text, HasSubstr("GPU 1"));
  EXPECT_THAT(text, HasSubstr("busy 97 %"));
  EXPECT_THAT(text, HasSubstr("640 W"));
  EXPECT_THAT(text, Not(HasSubstr("nan")));
  EXPECT_THAT(text, Not(HasSubstr("NVLink")));
}

TEST(LiveView, JsonLeavesOutWhatIsNotKnown) {
  const Json json = live_json(sample());
  EXPECT_EQ(json["run"]["step"], 119);
  EXPECT_EQ(json["run"]["loss"], 2.3125);
  EXPECT_EQ(json["gpus"][0]["power_watts"], 640);
  EXPECT_FALSE(json["gpus"][0].contains("temperature_celsius"));
}

TEST(LiveView, PrometheusGetsEachQuantityOnceWithItsLabels) {
  const std::string text = live_prometheus(sample());
  EXPECT_THAT(text,
              HasSubstr("# TYPE vitrine_gpu_power_watts gauge\n"
                        "vitrine_gpu_power_watts{gpu=\"1\",name=\"NVIDIA \\\"H200\\\"\"} 640\n"));
  EXPECT_THAT(text, HasSubstr("vitrine_run_step{run=\"runs/demo\"} 119\n"));
  EXPECT_THAT(text, HasSubstr("vitrine_run_loss{run=\"runs/demo\"} 2.3125\n"));
  EXPECT_THAT(text, Not(HasSubstr("grad_norm")));
  EXPECT_THAT(text, Not(HasSubstr("temperature")));
}

TEST(LiveView, ReadsARunThatHasNotDoneAStepAndOneThatHas) {
  const ScratchFolder folder;
  const std::string run = folder / "run";
  LiveView view;
  EXPECT_THROW(read_run(run, view), IoError);
  std::filesystem::create_directory(run);
  EXPECT_THROW(read_run(run, view), IoError);
  write_text_file(run + "/run.json", R"({"train": {"steps": 50}})");
  read_run(run, view);
  EXPECT_THAT(live_text(view), HasSubstr("no step is done yet"));
  write_text_file(run + "/metrics.jsonl", "{\"step\":4,\"time\":10.5,\"loss\":null}\n");
  read_run(run, view);
  EXPECT_EQ(view.metrics->step, 4);
  EXPECT_EQ(view.total_steps, 50);
}

}  // namespace
}  // namespace vitrine

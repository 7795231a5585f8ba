// The commands about GPUs, with one or without.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "core/json.h"
#include "gpu/gpu.h"
#include "gpu/nvml.h"
#include "support/command.h"

namespace vitrine {
namespace {

using testing::HasSubstr;

TEST(Doctor, WithoutAGpuSaysWhyAndFails) {
  const std::string why = why_no_gpu();
  if (why.empty()) GTEST_SKIP() << "there is one";
  const CommandResult text = run_vitrine({"doctor", "gpu"});
  EXPECT_EQ(text.code, 1);
  EXPECT_THAT(text.error, HasSubstr(why));
  EXPECT_EQ(text.out, "");
  const CommandResult json = run_vitrine({"doctor", "gpu", "--json"});
  EXPECT_EQ(json.code, 1);
  EXPECT_EQ(parse_json(json.out, "out")["reason"], why);
}

TEST(Doctor, WithoutASubjectIsWrongUsage) { EXPECT_EQ(run_vitrine({"doctor"}).code, 2); }

TEST(Top, WithoutADriverSaysSoAndFailsOnlyWhereGpusAreWanted) {
  std::string why;
  if (Nvml::open(why)) GTEST_SKIP() << "there is one";
  for (const std::vector<std::string>& line :
       {std::vector<std::string>{"top", "--once"}, {"top", "--gpus", "--once"}}) {
    const CommandResult result = run_vitrine(line);
    EXPECT_EQ(result.code, 1);
    EXPECT_THAT(result.error, HasSubstr(why));
  }
}

TEST(Top, ShowsARunOnceAsTextAndAsJson) {
  const ScratchFolder folder;
  write_text_file(folder / "run.json", R"({"train": {"steps": 20}})");
  write_text_file(folder / "metrics.jsonl",
                  "{\"step\":6,\"time\":5,\"loss\":2.5,\"tokens_per_s\":1000}\n");
  const CommandResult text = run_vitrine({"top", folder.path(), "--once"});
  EXPECT_EQ(text.code, 0) << text.error;
  EXPECT_THAT(text.out, HasSubstr("step 7/20  loss 2.5"));
  const CommandResult json = run_vitrine({"top", folder.path(), "--once", "--json"});
  EXPECT_EQ(json.code, 0) << json.error;
  EXPECT_EQ(parse_json(json.out, "out")["run"]["step"], 6);
}

TEST(Top, NamesAFolderThatHoldsNoRun) {
  const CommandResult result = run_vitrine({"top", "no/such/folder", "--once"});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.error, HasSubstr("no/such/folder"));
}

}  // namespace
}  // namespace vitrine

// Diagnosis and comparison as text: what must stand in it, and that any log can hold it.
#include "report/diagnosis_text.h"

#include <gtest/gtest.h>

#include <sstream>

#include "analysis/facts_builder.h"
#include "report/analysis_json.h"
#include "report/comparison_text.h"
#include "report/text_lines.h"

namespace vitrine {
namespace {

void expect_for_logs(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), kTextWidth) << line;
    for (const char c : line) EXPECT_TRUE(c >= 0x20 && c < 0x7F) << line;
  }
}

JobFacts starved() {
  JobFacts job = job_of({busy_rank(0), busy_rank(1)});
  for (RankFacts& rank : job.ranks) add_idle(rank, IdleCause::kDataLoading, 60, "data");
  job.warnings.push_back("a warning of the job with a name from abroad: \xC3\xA9t\xC3\xA9");
  job.ranks[1].warnings.push_back("the file was cut");
  return job;
}

TEST(DiagnosisText, BeginsWithTheVerdictAndHoldsFindingFixAndWarnings) {
  const JobFacts job = starved();
  const std::string text = diagnosis_text(job, diagnose(job));
  expect_for_logs(text);
  EXPECT_TRUE(text.starts_with("verdict: First: Input starvation, 60.0 ms (60.0 %) a step"))
      << text;
  for (const char* words :
       {"read:    2 of 2 ranks, NVIDIA H200, 4 steps",
        " 1. Input starvation [input_starvation], critical: 60.0 ms, 60.0 % of the step",
        "fix:  - PyTorch: DataLoader(num_workers",
        "not judged",
        "rank 1: the file was cut",
        "?t?"}) {
    EXPECT_NE(text.find(words), std::string::npos) << words << "\n" << text;
  }
}

TEST(DiagnosisText, OfNothingStillSaysSo) {
  const std::string text = diagnosis_text(JobFacts{}, diagnose(JobFacts{}));
  expect_for_logs(text);
  EXPECT_TRUE(text.starts_with("verdict: Not judged")) << text;
}

TEST(DiagnosisText, SaysWhatWouldMakeTheStepShorter) {
  JobFacts job = starved();
  const std::string without = diagnosis_text(job, diagnose(job));
  EXPECT_EQ(without.find("what would make"), std::string::npos) << without;
  add_answer(job.ranks[1], Change::kInstantData, 40);
  add_answer(job.ranks[1], Change::kFasterCommunication, 100);
  job.ranks[1].critical_path.what_if.push_back(
      {Change::kFasterHost, KernelClass::kOther, -1, "launches are not recorded"});
  const std::string text = diagnosis_text(job, diagnose(job));
  expect_for_logs(text);
  for (const char* words :
       {"what would make the step shorter: rank 1, steps 0 to 3, now 100.0 ms a step",
        "critical path: compute 100.0 ms (100.0 %)",
        "data loader infinitely fast           40.0 ms   2.50x",
        "no shorter: communication 2x faster",
        "not known: host 2x faster (launches are not recorded)"}) {
    EXPECT_NE(text.find(words), std::string::npos) << words << "\n" << text;
  }
}

TEST(DiagnosisText, WithoutStepsSharesAreOfTheTrace) {
  JobFacts job = starved();
  for (RankFacts& rank : job.ranks) rank.steps.clear();
  const std::string text = diagnosis_text(job, diagnose(job));
  EXPECT_NE(text.find("% of the trace"), std::string::npos) << text;
  EXPECT_EQ(text.find("% of the step"), std::string::npos) << text;
}

TEST(ComparisonText, OfWhatIsNotComparableHasNoTablesOfTimes) {
  const Comparison found = compare(JobFacts{}, starved());
  const std::string text = comparison_text(found, 10);
  EXPECT_TRUE(text.starts_with("Not comparable")) << text;
  EXPECT_EQ(text.find("b - a"), std::string::npos) << text;
  const Json json = comparison_json(found);
  ASSERT_EQ(json["rows"].size(), 1u);
  EXPECT_TRUE(json["rows"][0]["a"].is_null());
  EXPECT_EQ(json["rows"][0]["b"], 4e8);
  EXPECT_TRUE(json["rows"][0]["difference"].is_null());
}

TEST(ComparisonText, HoldsTheSummaryAndTheRows) {
  const Comparison comparison = compare(starved(), job_of({busy_rank(0, 40)}));
  const std::string text = comparison_text(comparison);
  expect_for_logs(text);
  EXPECT_NE(text.find("the data loader"), std::string::npos) << text;
  EXPECT_NE(text.find("   100.0 ms     40.0 ms    -60.0 ms    +100 %  step"), std::string::npos)
      << text;
}

TEST(TextLines, WrapIndentAndCutLongWords) {
  std::string out;
  append_lines(
      out, "* ", std::string(60, 'a') + " " + std::string(60, 'b') + "\n" + std::string(150, 'c'));
  EXPECT_EQ(out,
            "* " + std::string(60, 'a') + "\n  " + std::string(60, 'b') + "\n  " +
                std::string(98, 'c') + "\n  " + std::string(52, 'c') + "\n");
  out.clear();
  append_lines(out, "x: ", "");
  EXPECT_EQ(out, "x:\n");
}

}  // namespace
}  // namespace vitrine

// Diagnosis and comparison as text: what must stand in it, and that any log can hold it.
#include "report/diagnosis_text.h"

#include <gtest/gtest.h>

#include <sstream>

#include "analysis/facts_builder.h"
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

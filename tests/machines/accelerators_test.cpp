// The table of cards, and the names that drivers report.
#include "machines/accelerators.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace vitrine {
namespace {

const char* name_of(const std::string& reported) {
  const Accelerator* card = find_accelerator(reported);
  return card == nullptr ? "" : card->name;
}

TEST(Accelerators, AreKnownByTheNamesOfDrivers) {
  EXPECT_STREQ(name_of("NVIDIA B200"), "NVIDIA B200");
  EXPECT_STREQ(name_of("NVIDIA GB200"), "NVIDIA GB200");
  EXPECT_STREQ(name_of("NVIDIA B300 SXM6 AC"), "NVIDIA B300");
  EXPECT_STREQ(name_of("NVIDIA GB300"), "NVIDIA GB300");
  EXPECT_STREQ(name_of("NVIDIA RTX PRO 6000 Blackwell Workstation Edition"),
               "NVIDIA RTX PRO 6000 Blackwell");
  EXPECT_STREQ(name_of("MTT S5000"), "MTT S5000");
}

TEST(Accelerators, AreNotGuessedWhereANameLeavesTwoOpen) {
  EXPECT_STREQ(name_of("NVIDIA GeForce RTX 5060 Ti"), "");  // 8 or 16 GB
  EXPECT_STREQ(name_of("NVIDIA RTX PRO 6000 Blackwell Server Edition"), "");
  EXPECT_STREQ(name_of("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition"), "");
  EXPECT_STREQ(name_of("NVIDIA GH200 480GB"), "");
}

TEST(Accelerators, HaveUniqueNamesSourcesAndRatesInOrder) {
  std::set<std::string> names;
  for (const Accelerator& card : accelerators()) {
    EXPECT_TRUE(names.insert(card.name).second) << card.name;
    EXPECT_NE(std::string(card.source), "") << card.name;
    EXPECT_GT(card.memory_bytes, 0) << card.name;
    // Narrower numbers are never slower.
    EXPECT_TRUE(card.fp8_flops_per_s == 0 || card.fp8_flops_per_s > card.bf16_flops_per_s);
    EXPECT_TRUE(card.fp4_flops_per_s == 0 || card.fp4_flops_per_s > card.fp8_flops_per_s);
    // GB to bytes and TFLOP/s to FLOP/s: nothing is off by a factor of a thousand.
    EXPECT_GT(card.memory_bytes_per_s, 1e11) << card.name;
    EXPECT_LT(card.memory_bytes_per_s, 1e13) << card.name;
    EXPECT_LT(card.link_bytes_per_s, 1e12) << card.name;
  }
}

}  // namespace
}  // namespace vitrine

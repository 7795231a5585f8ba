// Rule: matrix products and alike that ran without tensor cores on a card that has them.
#include <algorithm>
#include <cctype>
#include <cstddef>

#include "analysis/rules/gain.h"
#include "analysis/rules/job_view.h"
#include "analysis/rules/rules.h"
#include "core/format.h"

namespace vitrine::rules {
namespace {

// NVIDIA cards with tensor cores, by the word of the name that tells the generation. TF32 came with
// Ampere; Volta and Turing need fp16.
struct Generation {
  const char* word;
  bool tf32;
};
constexpr Generation kWithTensorCores[] = {
    {"V100", false},     {"V100S", false},      {"T4", false},
    {"TITAN V", false},  {"RTX 2060", false},   {"RTX 2070", false},
    {"RTX 2080", false}, {"Quadro RTX", false}, {"Ada Generation", true},
    {"A100", true},      {"A800", true},        {"A10", true},
    {"A10G", true},      {"A30", true},         {"A40", true},
    {"A6000", true},     {"RTX 30#0", true},    {"RTX 40#0", true},
    {"RTX 50#0", true},  {"L4", true},          {"L40", true},
    {"L40S", true},      {"H100", true},        {"H800", true},
    {"H200", true},      {"H20", true},         {"B100", true},
    {"B200", true},      {"GH200", true},       {"GB200", true}};

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

// Whether `word` stands in `text` with no letter or digit beside it: "T4" is not in "T400". '#' is
// any digit.
bool has_word(const std::string& text, const std::string& word) {
  const auto inside = [&](size_t at) {
    return at < text.size() && std::isalnum(static_cast<unsigned char>(text[at])) != 0;
  };
  for (size_t at = 0; at + word.size() <= text.size(); ++at) {
    const bool same =
        std::equal(word.begin(),
                   word.end(),
                   text.begin() + static_cast<std::ptrdiff_t>(at),
                   [](char w, char c) { return w == c || (w == '#' && is_digit(c)); });
    if (same && (at == 0 || !inside(at - 1)) && !inside(at + word.size())) return true;
  }
  return false;
}

const Generation* generation_of(const std::string& device) {
  for (const Generation& one : kWithTensorCores) {
    if (has_word(device, one.word)) return &one;
  }
  return nullptr;
}

// Only kernels whose names say fp32 arithmetic count: a name that says nothing may use anything.
bool says_fp32(const KernelRow& row) {
  const bool product = row.kind == KernelClass::kMatmul || row.kind == KernelClass::kAttention ||
                       row.kind == KernelClass::kConvolution;
  if (!product || row.tensor_core) return false;
  for (const char* word : {"sgemm", "scudnn", "simt", "ffma", "<float"}) {
    if (row.name.find(word) != std::string::npos) return true;
  }
  return false;
}

// With less than half of the products in them, the rest of the step decides: fp32 heads are usual.
constexpr double kMost = 0.5;
// Published ratios of dense rates are 8 and more; what products bound by memory gain is near two.
constexpr double kLeastSpeedup = 2;

}  // namespace

void no_tensor_cores(const JobView& view, RuleOutput& out) {
  if (view.ranks.empty()) return;
  const RankView& rank = view.ranks.front();
  const RankFacts& facts = *rank.facts;
  if (facts.matmul_ns <= 0) return;
  const Generation* card = generation_of(facts.device);
  if (card == nullptr) {
    out.abstained.push_back("no_tensor_cores: " +
                            (facts.device.empty()
                                 ? std::string("the card's name is not in the trace")
                                 : "not known by kernel names for '" + facts.device + "'"));
    return;
  }
  int64_t fp32_ns = 0;
  for (const KernelRow& row : facts.kernels) fp32_ns += says_fp32(row) ? row.total_ns : 0;
  const double of_products = static_cast<double>(fp32_ns) / static_cast<double>(facts.matmul_ns);
  if (of_products < kMost) return;

  int64_t summed = 0;
  for (const int64_t ns : facts.class_ns) summed += ns;
  const double without =
      static_cast<double>(fp32_ns) / static_cast<double>(std::max<int64_t>(summed, 1));
  const auto cost = static_cast<int64_t>(without * static_cast<double>(rank.compute_ns) *
                                         (1 - 1 / kLeastSpeedup));
  Finding finding;
  finding.rule = "no_tensor_cores";
  finding.title = "Products without tensor cores";
  finding.confidence = 0.5;  // that they run in fp32 is sure, what it would gain is not
  set_cost(finding, view, cost);
  finding.summary = format(
      "%s of the time in matrix products and alike is in kernels of fp32 arithmetic, on a %s that "
      "has "
      "tensor cores.",
      percent(of_products).c_str(),
      facts.device.c_str());
  finding.cause =
      "The products run in fp32, or in shapes that the libraries don't take to tensor "
      "cores.";
  for (const KernelRow& row : facts.kernels) {
    if (!says_fp32(row) || finding.evidence.size() == 3) continue;
    finding.evidence.push_back({format("%s: %lld times, %s",
                                       short_kernel_name(row.name).c_str(),
                                       static_cast<long long>(row.count),
                                       format_ns(static_cast<double>(row.total_ns)).c_str()),
                                rank.rank});
  }
  if (card->tf32) {
    finding.fix = {
        "PyTorch: torch.autocast(\"cuda\", dtype=torch.bfloat16); DeepSpeed: \"bf16\": "
        "{\"enabled\": true}, the same in Vitrine's run file",
        "staying in fp32: torch.set_float32_matmul_precision(\"high\") uses TF32"};
  } else {
    finding.fix = {
        view.trains ? "PyTorch: torch.autocast(\"cuda\", dtype=torch.float16) with "
                      "torch.amp.GradScaler; DeepSpeed: \"fp16\": {\"enabled\": true} (this card "
                      "has no bf16 units)"
                    : "PyTorch: torch.autocast(\"cuda\", dtype=torch.float16), or model.half() "
                      "(this card has no bf16 units)"};
  }
  finding.fix.push_back("sizes of layers, heads and vocabulary in multiples of 8 (better 64)");
  const auto of = [&](KernelClass one) { return facts.class_ns[static_cast<size_t>(one)]; };
  const KernelClass kind = of(KernelClass::kConvolution) > of(KernelClass::kMatmul)
                               ? KernelClass::kConvolution
                               : KernelClass::kMatmul;
  finding.gain = "at least " + time_and_share(cost, finding.share) + " " + view.per() +
                 " if these products run twice as fast" +
                 predicted(view, Change::kFasterClass, kind);
  out.findings.push_back(std::move(finding));
}

}  // namespace vitrine::rules

// Presets of published measurements.
#include "plan/published_presets.h"

#include <cstdlib>

namespace vitrine {
namespace {

enum class Captured : uint8_t { kNothing, kRouter, kStatic, kAll };

struct Preset {
  int from, until;  // releases, year and month
  const char* model;
  const char* cards;  // words between spaces
  bool mx;            // in MXFP8 alone
  Dispatcher dispatcher;
  Captured captured;
  bool overlap;
};

constexpr Dispatcher kOnce = Dispatcher::kRanks, kEach = Dispatcher::kCopies;
// The first line that fits counts.
constexpr Preset kPresets[] = {
    // 25.09 pads and drops tokens: experts have one shape too, and whole layers are captured.
    {2509, 2509, "qwen3-30b", " GB200 B200 ", false, kEach, Captured::kAll, false},
    {2509, 2509, "qwen3-235b", " GB200 ", false, kEach, Captured::kAll, false},
    {2509, 2509, "qwen3", " B200 H100 ", false, kEach, Captured::kNothing, false},
    {2509, 2509, "deepseek-v3", " GB200 B200 ", false, kEach, Captured::kNothing, false},
    {2509, 2509, "deepseek-v3", " H100 ", false, kOnce, Captured::kNothing, false},
    // From 26.06 a whole iteration is captured where tokens are exchanged without the host.
    {2606, 9912, "deepseek-v3", " GB200 GB300 ", true, kOnce, Captured::kAll, true},
    {2606, 9912, "qwen3", " GB200 GB300 ", true, kOnce, Captured::kAll, true},
    {2606, 9912, "gpt-oss", " GB200 GB300 ", true, kOnce, Captured::kAll, true},
    {2606, 9912, "qwen3-30b", " B200 B300 ", true, kOnce, Captured::kAll, true},
    {2606, 9912, "deepseek-v3", " B300 ", true, kOnce, Captured::kStatic, false},
    {2511, 2511, "deepseek-v3", " GB200 ", false, kOnce, Captured::kRouter, false},
    {2511, 2511, "deepseek-v3", " GB300 ", false, kOnce, Captured::kStatic, false},
    {2511, 2511, "deepseek-v3", " H100 ", false, kOnce, Captured::kNothing, true},
    {2511, 2511, "deepseek-v3", " B200 ", false, kEach, Captured::kNothing, false},
    {2602, 9912, "deepseek-v3", " GB200 ", false, kOnce, Captured::kStatic, false},
    {2602, 9912, "deepseek-v3", " GB300 B200 B300 H100 ", false, kOnce, Captured::kNothing, false},
    {2511, 2511, "qwen3-235b", " GB300 ", false, kOnce, Captured::kRouter, false},
    {2511, 9912, "qwen3-235b", " GB200 GB300 ", false, kOnce, Captured::kStatic, false},
    {2511, 2511, "qwen3-235b", " B200 ", false, kEach, Captured::kNothing, true},
    {2511, 9912, "qwen3-235b", " H100 ", false, kEach, Captured::kNothing, true},
    {2602, 2602, "qwen3-235b", " B300 ", false, kEach, Captured::kNothing, true},
    {2602, 9912, "qwen3-235b", " B200 B300 ", false, kEach, Captured::kNothing, false},
    {2511, 9912, "qwen3-30b", " GB200 GB300 B300 ", false, kOnce, Captured::kRouter, false},
    {2511, 2602, "qwen3-30b", " B200 ", false, kEach, Captured::kRouter, false},
    {2604, 9912, "qwen3-30b", " B200 ", false, kOnce, Captured::kStatic, false},
    {2511, 2511, "qwen3-30b", " H100 ", false, kEach, Captured::kNothing, true},
    {2602, 2602, "qwen3-30b", " H100 ", false, kOnce, Captured::kNothing, true},
    {2604, 9912, "qwen3-30b", " H100 ", false, kOnce, Captured::kNothing, false},
    {2604, 9912, "gpt-oss", " GB200 ", false, kOnce, Captured::kNothing, true},
    {2604, 9912, "gpt-oss", " B300 ", false, kOnce, Captured::kStatic, false},
    {2604, 2604, "gpt-oss", " B200 ", false, kOnce, Captured::kNothing, false},
    {2511, 9912, "gpt-oss", " GB300 B300 ", false, kEach, Captured::kStatic, false},
    {2511, 9912, "gpt-oss", " GB200 B200 H100 ", false, kEach, Captured::kNothing, false},
};

void set_captured(ClusterStrategy& s, Captured captured) {
  s.graphs = captured == Captured::kAll;
  s.static_graphs = captured == Captured::kStatic;
  s.router_graphs = captured == Captured::kRouter;
}

// "... [26.06.01 NeMo Container; ...": 2606; 0 without.
int release_of(const std::string& source) {
  const size_t at = source.find('[');
  if (at == std::string::npos || at + 6 > source.size() || source[at + 3] != '.') return 0;
  return std::atoi(source.substr(at + 1, 2).c_str()) * 100 +
         std::atoi(source.substr(at + 4, 2).c_str());
}

}  // namespace

void apply_bridge_preset(Measurement& m, const std::string& precision) {
  const int release = release_of(m.source);
  if (release == 0) return;
  // Small dense models on Blackwell: the whole iteration.
  const std::string& card = m.cluster.profile;
  const bool blackwell = card.starts_with("B") || card.starts_with("GB");
  if (m.model.stack.experts == 0) {
    set_captured(m.strategy,
                 blackwell && m.model.stack.hidden == 4096 ? Captured::kAll : Captured::kNothing);
    return;
  }
  const bool mx = precision.find("mx") != std::string::npos;
  for (const Preset& p : kPresets) {
    if (release < p.from || release > p.until || (p.mx && !mx)) continue;
    if (!m.model.name.starts_with(p.model)) continue;
    if (std::string(p.cards).find(" " + m.cluster.profile + " ") == std::string::npos) continue;
    m.strategy.dispatcher = p.dispatcher;
    m.strategy.overlap_expert = p.overlap;
    set_captured(m.strategy, p.captured);
    return;
  }
}

void apply_zoo_command(Measurement& m) {
  // --cuda-graph-scope attn moe_router moe_preprocess but for long rows; A2A_OVERLAP=1 and
  // --recompute-modules moe_act layernorm in MXFP8.
  const bool long_rows = m.strategy.sequence > 32768, mx = m.strategy.precision == Precision::kF8;
  m.strategy.static_graphs = !long_rows;
  m.strategy.overlap_expert = mx && !long_rows;
  if (mx) m.strategy.recompute = Recompute::kSelective;
}

}  // namespace vitrine

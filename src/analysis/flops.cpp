// mm, addmm, bmm, baddbmm, linear, backward convolution, scaled dot product attention.
#include "analysis/flops.h"

#include <charconv>
#include <string_view>
#include <utility>

namespace vitrine {
namespace {

using Shape = std::vector<int64_t>;

double elements(const Shape& shape) {
  double product = 1;
  for (const int64_t dimension : shape) product *= static_cast<double>(dimension);
  return product;
}

constexpr double kElementBytes = 2;

// [..., M, K] x [..., K, N]
OperatorCost product(const Shape& a, const Shape& b) {
  if (a.size() < 2 || a.size() != b.size() || a.back() != b[b.size() - 2]) return {};
  const double n = static_cast<double>(b.back()), k = static_cast<double>(a.back());
  const double out = elements(a) / k * n;
  if (k == 0) return {};
  return {2 * out * k, kElementBytes * (elements(a) + elements(b) + out)};
}

// [..., K] x [N, K]
OperatorCost linear(const Shape& input, const Shape& weight) {
  if (input.empty() || weight.size() != 2 || input.back() != weight[1] || weight[1] == 0) return {};
  const double rows = elements(input) / static_cast<double>(input.back());
  const double out = rows * static_cast<double>(weight[0]);
  return {2 * out * static_cast<double>(weight[1]),
          kElementBytes * (elements(input) + elements(weight) + out)};
}

// query [B, H, S, D], key [B, H', T, D], value [B, H', T, E]; `products`: matrix products of that
// size, two in forward (scores, values), five in backward (scores again, and four gradients).
OperatorCost attention(const Shape& query, const Shape& key, const Shape& value, double products) {
  if (query.size() != 4 || key.size() != 4 || value.size() != 4) return {};
  const double scores = elements(query) / static_cast<double>(query[3] > 0 ? query[3] : 1) *
                        static_cast<double>(key[2]);
  const double width = (static_cast<double>(query[3]) + static_cast<double>(value[3])) / 2;
  const double moved = 2 * elements(query) + elements(key) + elements(value);
  return {products * 2 * scores * width, kElementBytes * moved * (products > 2 ? 2 : 1)};
}

// gradient of output [N, K, ...], input [N, C, ...], weight [K, C / groups, ...]: two products.
OperatorCost convolution_backward(const Shape& gradient, const Shape& input, const Shape& weight) {
  if (gradient.size() < 3 || weight.size() != gradient.size() || weight[0] == 0) return {};
  const double each = 2 * elements(gradient) * elements(weight) / static_cast<double>(weight[0]);
  return {2 * each, kElementBytes * 2 * (elements(gradient) + elements(input) + elements(weight))};
}

// Operators of attention: where query stands among the inputs, and whether heads come before the
// sequence (batch, heads, sequence, width) or after it.
struct AttentionOperator {
  std::string_view name;
  size_t query;
  bool heads_first;
};
constexpr AttentionOperator kAttention[] = {
    {"aten::scaled_dot_product_attention", 0, true},
    {"aten::_scaled_dot_product_attention_math", 0, true},
    {"aten::_scaled_dot_product_flash_attention", 0, true},
    {"aten::_scaled_dot_product_efficient_attention", 0, true},
    {"aten::_scaled_dot_product_cudnn_attention", 0, true},
    {"aten::_scaled_dot_product_flash_attention_backward", 1, true},
    {"aten::_scaled_dot_product_efficient_attention_backward", 1, true},
    {"aten::_scaled_dot_product_cudnn_attention_backward", 1, true},
    {"aten::_cudnn_attention_forward", 0, true},
    {"aten::_cudnn_attention_backward", 1, true},
    {"aten::_flash_attention_forward", 0, false},
    {"aten::_flash_attention_backward", 1, false},
    {"aten::_efficient_attention_forward", 0, false},
    {"aten::_efficient_attention_backward", 1, false}};

}  // namespace

std::vector<std::vector<int64_t>> parse_shapes(const std::string& text) {
  std::vector<Shape> out;
  int depth = 0;
  const char* at = text.data();
  const char* end = at + text.size();
  while (at < end) {
    if (*at == '[') {
      ++depth;
      if (depth == 2) out.emplace_back();
      ++at;
    } else if (*at == ']') {
      --depth;
      ++at;
    } else if (*at == ',' || *at == ' ' || *at == '"') {
      ++at;
    } else {
      int64_t number = 0;
      const auto [next, error] = std::from_chars(at, end, number);
      if (error != std::errc() || depth < 1) return {};
      // Deeper lists are lists of tensors: their shapes do not belong to one input.
      if (depth == 2) out.back().push_back(number);
      if (depth > 2) out.back().clear();
      at = next;
    }
  }
  return out;
}

OperatorCost operator_cost(const std::string& name, const std::string& shapes) {
  if (!name.starts_with("aten::")) return {};
  for (const AttentionOperator& known : kAttention) {
    if (name != known.name) continue;
    std::vector<Shape> in = parse_shapes(shapes);
    if (in.size() < known.query + 3) return {};
    for (size_t i = known.query; i < known.query + 3 && !known.heads_first; ++i) {
      if (in[i].size() == 4) std::swap(in[i][1], in[i][2]);
    }
    return attention(
        in[known.query], in[known.query + 1], in[known.query + 2], known.query == 0 ? 2 : 5);
  }
  if (!name.ends_with("mm") && name != "aten::linear" && name != "aten::convolution_backward") {
    return {};
  }
  const std::vector<Shape> in = parse_shapes(shapes);
  if (in.size() < 2) return {};
  if (name == "aten::mm" || name == "aten::bmm") return product(in[0], in[1]);
  if (name == "aten::linear") return linear(in[0], in[1]);
  if (in.size() < 3) return {};
  if (name == "aten::addmm" || name == "aten::baddbmm") return product(in[1], in[2]);
  if (name == "aten::convolution_backward") return convolution_backward(in[0], in[1], in[2]);
  return {};
}

}  // namespace vitrine

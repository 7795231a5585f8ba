// The registry, what infer() refuses, what it costs, and ids out of range.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.h"
#include "core/json.h"
#include "support/op_runner.h"

namespace vitrine::test {
namespace {

// First column of the table in OPERATIONS.md, without attributes in parentheses.
std::vector<std::string> documented_ops() {
  std::vector<std::string> names;
  const std::string text = read_text_file("src/ops/OPERATIONS.md");
  for (size_t at = 0; (at = text.find("\n| ", at)) != std::string::npos; ++at) {
    const size_t begin = at + 3;
    const std::string name = text.substr(begin, text.find_first_of(" (|", begin) - begin);
    if (name != "op") names.push_back(name);
  }
  return names;
}

TEST(Registry, HasEveryDocumentedOperationAndNoOther) {
  auto documented = documented_ops();
  std::sort(documented.begin(), documented.end());
  EXPECT_EQ(documented.size(), 27u);
  EXPECT_EQ(op_names(), documented);
}

TEST(Registry, HasARowForEachOperationInBothBackends) {
  for (const std::string& name : op_names()) {
    for (const Backend* backend : {&reference_backend(), &cpu_backend()}) {
      ASSERT_TRUE(backend->has(name)) << backend->name() << " " << name;
      EXPECT_NE(backend->kernels(name).forward, nullptr);
      EXPECT_NE(backend->kernels(name).backward, nullptr);
    }
    EXPECT_NE(cpu_backend().kernels(name).forward, reference_backend().kernels(name).forward)
        << name << " has no fast row";
  }
}

TEST(Registry, NamesTheNearestOperation) {
  try {
    find_op("layernorm");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("layer_norm"), std::string::npos) << error.what();
  }
  EXPECT_THROW(register_op(find_op("linear")), ConfigError);
  EXPECT_THROW(Backend("empty").kernels("linear"), ConfigError);
}

TEST(Registry, HasACaseForEveryOperation) {
  for (const std::string& name : op_names()) {
    for (const auto& cases : {small_op_cases(), large_op_cases()}) {
      EXPECT_TRUE(std::any_of(cases.begin(), cases.end(), [&](const OpCase& c) {
        return c.op == name;
      })) << name;
    }
  }
}

TEST(Cost, IsPositiveWhereThereIsWorkAndCountsTheMatrixProducts) {
  for (const OpCase& c : large_op_cases()) {
    const auto types = c.types(DType::kF32);
    EXPECT_GT(find_op(c.op).forward_cost(c.attrs, types).bytes, 0) << c.label();
    EXPECT_GT(find_op(c.op).backward_cost(c.attrs, types).bytes, 0) << c.label();
  }
  const std::vector<TensorType> linear{{{10, 3}, DType::kF32}, {{5, 3}, DType::kF32}};
  EXPECT_EQ(find_op("linear").forward_cost({}, linear).flops, 2 * 10 * 3 * 5);
  EXPECT_EQ(find_op("linear").forward_cost({}, linear).bytes, 4 * (30 + 15 + 50));
  EXPECT_EQ(find_op("linear").backward_cost({}, linear).flops, 4 * 10 * 3 * 5);
}

TEST(Cost, OfCausalAttentionIsThatOfTheVisiblePairs) {
  const std::vector<TensorType> qkv{{{1, 4, 6}, DType::kF32}};
  Attrs attrs{{"heads", 1}, {"kv_heads", 1}, {"head_dim", 2}, {"axis", 1}, {"causal", 0}};
  const double one_pair = 4 * 2 + 5;
  EXPECT_EQ(find_op("attention").forward_cost(attrs, qkv).flops, 16 * one_pair);
  attrs.set("causal", 1);
  EXPECT_EQ(find_op("attention").forward_cost(attrs, qkv).flops, 10 * one_pair);
  attrs.set("causal_block", 2);
  EXPECT_EQ(find_op("attention").forward_cost(attrs, qkv).flops, 12 * one_pair);
}

void expect_refused(const OpCase& c, const std::vector<TensorType>& types, const std::string& why) {
  try {
    find_op(c.op).infer(c.attrs, types);
    FAIL() << c.label() << " accepted with " << why;
  } catch (const ShapeError& error) {
    EXPECT_EQ(std::string(error.what()).rfind(c.op + ":", 0), 0u) << error.what();
  }
}

TEST(Infer, RefusesWrongCountsDtypesAndRanksNamingTheOperation) {
  for (const OpCase& c : small_op_cases()) {
    const auto good = c.types(DType::kF32);
    expect_refused(c, {}, "no inputs");
    auto more = good;
    more.resize(static_cast<size_t>(find_op(c.op).max_inputs) + 1, good[0]);
    expect_refused(c, more, "too many inputs");
    for (size_t i = 0; i < good.size(); ++i) {
      auto bad = good;
      bad[i].dtype = c.is_ids(i) ? DType::kF32 : DType::kI32;
      expect_refused(c, bad, "the dtype of input " + std::to_string(i));
    }
    if (good.size() > 1 && !c.is_ids(0) && !c.is_ids(1)) {
      auto bad = good;
      bad[1].dtype = DType::kBF16;
      expect_refused(c, bad, "mixed dtypes");
      bad = good;
      bad[1].shape = bad[1].shape.rank() ? bad[1].shape.with_last(bad[1].shape[-1] + 1) : Shape{3};
      expect_refused(c, bad, "a wrong second shape");
    }
  }
}

TEST(Infer, RefusesMissingAndImpossibleAttributes) {
  for (const OpCase& c : small_op_cases()) {
    for (const auto& [name, value] : c.attrs.values()) {
      if (name == "causal_block" || name == "chunk_rows" || name == "gradient_in_forward" ||
          name == "fp8")
        continue;                                         // optional
      if (c.op == "qk_norm" && name == "base") continue;  // no positions without one
      OpCase without = c;
      without.attrs = {};
      for (const auto& [other, kept] : c.attrs.values()) {
        if (other != name) without.attrs.set(other, kept);
      }
      expect_refused(without, c.types(DType::kF32), "no " + name);
      if (name == "factor") continue;
      without.attrs.set(name, -100);
      expect_refused(without, c.types(DType::kF32), name + " of -100");
    }
  }
  expect_refused({"linear", {{"fp8", 4}}, {}},
                 {{{16, 16}, DType::kBF16}, {{16, 16}, DType::kBF16}},
                 "fp8 of 4");
  const TensorType x{{2, 6, 16}, DType::kF32};
  expect_refused({"rotary", {{"heads", 2}, {"head_dim", 3}, {"base", 10}, {"axis", 1}}, {}},
                 {x},
                 "an odd head");
  expect_refused({"rotary", {{"heads", 9}, {"head_dim", 2}, {"base", 10}, {"axis", 1}}, {}},
                 {x},
                 "too many heads");
  expect_refused({"rotary", {{"heads", 2}, {"head_dim", 2}, {"base", 10}, {"axis", 2}}, {}},
                 {x},
                 "the last axis");
  Attrs turned{{"heads", 1}, {"kv_heads", 1}, {"head_dim", 3}, {"eps", 1e-6}, {"axis", 0}};
  const std::vector<TensorType> odd{{{6, 9}, DType::kF32}, {{3}, DType::kF32}, {{3}, DType::kF32}};
  EXPECT_NO_THROW(find_op("qk_norm").infer(turned, odd));
  turned.set("base", 100);
  expect_refused({"qk_norm", turned, {}}, odd, "an odd head that is turned");
  expect_refused({"time_slice", {{"begin", 5}, {"count", 2}}, {}}, {x}, "a slice beyond the end");
  expect_refused({"take_token", {{"index", 6}}, {}}, {x}, "a token beyond the end");
  expect_refused({"swiglu", {}, {}}, {{{2, 5}, DType::kF32}}, "an odd width");
}

TEST(Ids, OutOfRangeNameTheIdItsPlaceAndTheVocabulary) {
  for (const Backend* backend : {&reference_backend(), &cpu_backend()}) {
    for (const int32_t id : {7, -1}) {
      const OpCase c{"embedding", {}, {{2, 3}, {7, 4}}, 7};
      auto in = make_inputs(c, DType::kF32, 1);
      in[0].set(4, id);
      try {
        run_forward(*backend, c, in);
        FAIL() << id;
      } catch (const ShapeError& error) {
        const std::string text = error.what();
        EXPECT_NE(text.find("embedding: id " + std::to_string(id) + " at place 4"),
                  std::string::npos)
            << text;
        EXPECT_NE(text.find("[0, 7)"), std::string::npos) << text;
      }
    }
    const OpCase c{"linear_cross_entropy", {}, {{3, 4}, {7, 4}, {3}}, 7};
    auto in = make_inputs(c, DType::kF32, 1);
    in[2].set(2, 7);
    EXPECT_THROW(run_forward(*backend, c, in), ShapeError);
  }
}

TEST(LinearCrossEntropy, OfIgnoredRowsAloneIsZeroWithZeroGradients) {
  for (const Backend* backend : {&reference_backend(), &cpu_backend()}) {
    const OpCase c{"linear_cross_entropy", {}, {{2, 4}, {7, 4}, {2}}, 7};
    auto in = make_inputs(c, DType::kF32, 1);
    in[2].set({-100, -1});
    const ForwardResult forward = run_forward(*backend, c, in);
    EXPECT_EQ(forward.out[0].values(), std::vector<double>{0});
    std::vector<Tensor> dout{Tensor(forward.out[0].type())};
    dout[0].set(0, 1);
    const auto din = run_backward(*backend, c, in, forward, dout);
    EXPECT_EQ(din[0].values(), std::vector<double>(8));
    EXPECT_EQ(din[1].values(), std::vector<double>(28));
  }
}

}  // namespace
}  // namespace vitrine::test

// What the contracts of the built-in operations share: checks that name the operation, byte counts.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ops/op.h"

namespace vitrine::contracts {

using Types = std::span<const TensorType>;

// The built-in operations by family; op.cpp puts them in the registry.
std::vector<OpDef> matmul_ops();
std::vector<OpDef> norm_ops();
std::vector<OpDef> attention_ops();
std::vector<OpDef> pointwise_ops();
std::vector<OpDef> loss_ops();
std::vector<OpDef> layout_ops();

// Throws ShapeError "<op>: <message>".
[[noreturn]] void fail(const char* op, const std::string& message);

bool is_floating(DType dtype);
// The number of inputs is in [minimum, maximum].
void check_count(const char* op, Types in, size_t minimum, size_t maximum);
// All inputs have one floating dtype.
void check_floating(const char* op, Types in);
void check_rank_at_least(const char* op, const char* what, const Shape& shape, int rank);
void check_shape(const char* op, const char* what, const Shape& got, const Shape& expected);
// The attribute is a whole number of at least `minimum`.
int64_t whole(const char* op, const Attrs& attrs, const char* name, int64_t minimum);
int64_t whole(
    const char* op, const Attrs& attrs, const char* name, int64_t minimum, int64_t fallback);
double positive(const char* op, const Attrs& attrs, const char* name);

// Statistics and losses: f32, but f64 when the inputs are.
DType wide(DType dtype);

double element_count(const TensorType& type);
double sum_bytes(Types types);
// Each input read once, each output and saved value written once.
double forward_bytes(const OpSignature& signature, Types in);
// Each value that backward reads, each saved value and output gradient read once; each input
// gradient written.
double backward_bytes(const OpDef& op, const OpSignature& signature, Types in);

// Heads of the packed last dimension [(H + 2 G) d].
struct PackedHeads {
  int64_t heads, kv_heads, head_dim;
};
PackedHeads packed_heads(const char* op, const Attrs& attrs, const Shape& qkv);
// A dimension index from attribute `axis` (negative counts from the last), never the last
// dimension.
int leading_axis(const char* op, const Attrs& attrs, const Shape& shape);

}  // namespace vitrine::contracts

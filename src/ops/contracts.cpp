// Checks and byte counts shared by the contracts of the built-in operations.
#include "ops/contracts.h"

#include <cmath>

#include "core/error.h"
#include "core/format.h"

namespace vitrine::contracts {

void fail(const char* op, const std::string& message) {
  throw ShapeError(std::string(op) + ": " + message);
}

bool is_floating(DType dtype) { return dtype != DType::kI32 && dtype != DType::kU8; }

void check_count(const char* op, Types in, size_t minimum, size_t maximum) {
  if (in.size() >= minimum && in.size() <= maximum) return;
  const std::string expected = minimum == maximum
                                   ? std::to_string(minimum)
                                   : std::to_string(minimum) + " to " + std::to_string(maximum);
  fail(op, "expected " + expected + " inputs, got " + std::to_string(in.size()));
}

void check_floating(const char* op, Types in) {
  for (size_t i = 0; i < in.size(); ++i) {
    if (!is_floating(in[i].dtype)) {
      fail(op,
           format("input %zu must be floating (f32, bf16, f16, f64), got %s",
                  i,
                  dtype_name(in[i].dtype)));
    }
    if (in[i].dtype != in[0].dtype) {
      fail(op,
           format("inputs must share one dtype, but input 0 is %s and input %zu is %s; convert one "
                  "of them",
                  dtype_name(in[0].dtype),
                  i,
                  dtype_name(in[i].dtype)));
    }
  }
}

void check_rank_at_least(const char* op, const char* what, const Shape& shape, int rank) {
  if (shape.rank() < rank) {
    fail(op, format("%s needs at least %d dimensions, got %s", what, rank, shape.str().c_str()));
  }
}

void check_shape(const char* op, const char* what, const Shape& got, const Shape& expected) {
  if (got == expected) return;
  fail(op,
       format("expected %s of shape %s, got %s", what, expected.str().c_str(), got.str().c_str()));
}

int64_t whole(const char* op, const Attrs& attrs, const char* name, int64_t minimum) {
  if (!attrs.has(name)) fail(op, format("attribute '%s' is missing", name));
  const double value = attrs.number(name);
  // Beyond 2^53 a double no longer tells whole numbers apart.
  if (value != std::floor(value) || value < static_cast<double>(minimum) || value > 0x1p53) {
    fail(op,
         format("attribute '%s' must be a whole number of at least %lld, got %g",
                name,
                static_cast<long long>(minimum),
                value));
  }
  return static_cast<int64_t>(value);
}

int64_t whole(
    const char* op, const Attrs& attrs, const char* name, int64_t minimum, int64_t fallback) {
  return attrs.has(name) ? whole(op, attrs, name, minimum) : fallback;
}

double positive(const char* op, const Attrs& attrs, const char* name) {
  if (!attrs.has(name)) fail(op, format("attribute '%s' is missing", name));
  const double value = attrs.number(name);
  if (!(value > 0) || !std::isfinite(value)) {
    fail(op, format("attribute '%s' must be positive, got %g", name, value));
  }
  return value;
}

DType wide(DType dtype) { return dtype == DType::kF64 ? DType::kF64 : DType::kF32; }

double element_count(const TensorType& type) { return static_cast<double>(type.shape.elements()); }

double sum_bytes(Types types) {
  double bytes = 0;
  for (const TensorType& type : types) bytes += static_cast<double>(type.bytes());
  return bytes;
}

double forward_bytes(const OpSignature& signature, Types in) {
  return sum_bytes(in) + sum_bytes(signature.out) + sum_bytes(signature.saved);
}

double backward_bytes(const OpDef& op, const OpSignature& signature, Types in) {
  double bytes = sum_bytes(signature.saved) + sum_bytes(signature.out);  // saved, output gradients
  for (size_t i = 0; i < in.size(); ++i) {
    const double size = static_cast<double>(in[i].bytes());
    if (op.backward_reads_in >> i & 1u) bytes += size;
    if (op.differentiable >> i & 1u) bytes += size;
  }
  for (size_t i = 0; i < signature.out.size(); ++i) {
    if (op.backward_reads_out >> i & 1u) bytes += static_cast<double>(signature.out[i].bytes());
  }
  return bytes;
}

PackedHeads packed_heads(const char* op, const Attrs& attrs, const Shape& qkv) {
  const PackedHeads h{whole(op, attrs, "heads", 1),
                      whole(op, attrs, "kv_heads", 1),
                      whole(op, attrs, "head_dim", 1)};
  if (h.heads % h.kv_heads != 0) {
    fail(op,
         format("heads (%lld) must be a multiple of kv_heads (%lld)",
                static_cast<long long>(h.heads),
                static_cast<long long>(h.kv_heads)));
  }
  check_rank_at_least(op, "qkv", qkv, 1);
  check_shape(op, "qkv", qkv, qkv.with_last((h.heads + 2 * h.kv_heads) * h.head_dim));
  return h;
}

int leading_axis(const char* op, const Attrs& attrs, const Shape& shape) {
  const int64_t given = whole(op, attrs, "axis", -Shape::kMaxRank);
  const int64_t axis = given < 0 ? given + shape.rank() : given;
  if (axis < 0 || axis >= shape.rank() - 1) {
    fail(op,
         format("attribute 'axis' is %lld, but it must name a dimension of %s before the last",
                static_cast<long long>(given),
                shape.str().c_str()));
  }
  return static_cast<int>(axis);
}

}  // namespace vitrine::contracts

// The reference backend's table, and loading and storing in double.
#include "core/error.h"
#include "ops/cpu/reference/values.h"

namespace vitrine {
namespace reference {
namespace {

double read(const TensorView& view, int64_t i) {
  switch (view.dtype) {
    case DType::kF32:
      return static_cast<double>(view.as<float>()[i]);
    case DType::kF64:
      return view.as<double>()[i];
    case DType::kBF16:
      return static_cast<double>(to_float(view.as<bf16>()[i]));
    case DType::kF16:
      return static_cast<double>(to_float(view.as<f16>()[i]));
    case DType::kI32:
      return view.as<int32_t>()[i];
    case DType::kU8:
      return view.as<uint8_t>()[i];
  }
  return 0;
}

void write(const TensorView& view, int64_t i, double value) {
  switch (view.dtype) {
    case DType::kF32:
      view.as<float>()[i] = static_cast<float>(value);
      return;
    case DType::kF64:
      view.as<double>()[i] = value;
      return;
    case DType::kBF16:
      view.as<bf16>()[i] = to_bf16(static_cast<float>(value));
      return;
    case DType::kF16:
      view.as<f16>()[i] = to_f16(static_cast<float>(value));
      return;
    case DType::kI32:
    case DType::kU8:
      VITRINE_ASSERT(!"results are floating");
  }
}

}  // namespace

Values load(const TensorView& view) {
  Values values(at(view.elements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = read(view, static_cast<int64_t>(i));
  return values;
}

Values load_or_zero(const TensorView& view, int64_t count) {
  return view ? load(view) : zeros(count);
}

void store(const TensorView& view, const Values& values) {
  VITRINE_ASSERT(view.elements() == static_cast<int64_t>(values.size()));
  for (size_t i = 0; i < values.size(); ++i) write(view, static_cast<int64_t>(i), values[i]);
}

void store_gradient(const GradView& gradient, const Values& values) {
  if (!gradient) return;
  VITRINE_ASSERT(gradient.view.elements() == static_cast<int64_t>(values.size()));
  for (size_t i = 0; i < values.size(); ++i) {
    const int64_t place = static_cast<int64_t>(i);
    write(gradient.view,
          place,
          gradient.accumulate ? read(gradient.view, place) + values[i] : values[i]);
  }
}

}  // namespace reference

Backend& reference_backend() {
  static Backend instance = [] {
    Backend backend("reference");
    reference::add_matmul(backend);
    reference::add_norm(backend);
    reference::add_attention(backend);
    reference::add_pointwise(backend);
    reference::add_loss(backend);
    reference::add_layout(backend);
    return backend;
  }();
  return instance;
}

}  // namespace vitrine

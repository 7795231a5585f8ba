// Operands of one operation.
#include "ops/cpu/op_operands.h"

#include <algorithm>
#include <cstring>

#include "core/philox.h"

namespace vitrine {
namespace {

// Random values, the same ones again after kPeriod elements: drawing more would take longer than
// what is timed.
void fill(const TensorView& view, int64_t vocabulary) {
  constexpr int64_t kPeriod = 4099;
  const Philox random(1, stream_of("bench"));
  const size_t size = dtype_bytes(view.dtype);
  char* data = view.as<char>();
  for (int64_t i = 0; i < std::min(kPeriod, view.elements()); ++i) {
    const uint64_t counter = static_cast<uint64_t>(i);
    if (view.dtype == DType::kI32) {
      view.as<int32_t>()[i] =
          static_cast<int32_t>(random.below(static_cast<uint64_t>(vocabulary), counter));
    } else {
      const double value = random.uniform(counter) - 0.5;
      convert(view.dtype, data + static_cast<size_t>(i) * size, DType::kF64, &value, 1);
    }
  }
  for (int64_t at = kPeriod; at < view.elements(); at += kPeriod) {
    const int64_t count = std::min(kPeriod, view.elements() - at);
    std::memcpy(data + static_cast<size_t>(at) * size, data, static_cast<size_t>(count) * size);
  }
}

}  // namespace

OpOperands::OpOperands(const OpCase& c, DType dtype) : case_(c), op_(find_op(c.op)) {
  for (size_t i = 0; i < c.shapes.size(); ++i)
    types_.push_back({c.shapes[i], static_cast<int>(i) == c.ids ? DType::kI32 : dtype});
  const OpSignature signature = op_.infer(c.attrs, types_);
  for (size_t i = 0; i < types_.size(); ++i) {
    in_.push_back(make(types_[i]));
    fill(in_.back(), c.vocabulary);
    din_.push_back(op_.differentiable >> i & 1u ? GradView{make(types_[i]), false} : GradView{});
  }
  for (const TensorType& type : signature.out) {
    out_.push_back(make(type));
    dout_.push_back(make(type));
    fill(dout_.back(), 0);
  }
  for (const TensorType& type : signature.saved) saved_.push_back(make(type));
  const int64_t workspace = std::max(signature.forward_workspace, signature.backward_workspace);
  workspace_ = make({Shape{workspace}, DType::kU8}).data;
}

void OpOperands::run(const Backend& backend, bool backward) {
  const OpCall call{&case_.attrs, in_, out_, saved_, workspace_};
  const OpKernels& kernels = backend.kernels(case_.op);
  backward ? kernels.backward(call, dout_, din_) : kernels.forward(call);
}

Cost OpOperands::cost(bool backward) const {
  return (backward ? op_.backward_cost : op_.forward_cost)(case_.attrs, types_);
}

TensorView OpOperands::make(const TensorType& type) {
  buffers_.emplace_back(
      ledger_, MemoryCategory::kWorkspace, "bench", static_cast<size_t>(type.bytes()) + 64, true);
  return {buffers_.back().data(), type.shape, type.dtype};
}

}  // namespace vitrine

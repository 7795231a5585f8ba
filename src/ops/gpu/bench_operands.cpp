// Filling and running of operands.
#include "ops/gpu/bench_operands.h"

#include <algorithm>

#include "core/error.h"
#include "core/philox.h"

namespace vitrine {

BenchPattern::BenchPattern(Device& device) : device_(device) {
  std::vector<float> host(kCount);
  const Philox random(1, stream_of("bench"));
  for (size_t i = 0; i < host.size(); ++i) host[i] = static_cast<float>(random.normal(i));
  std::vector<bf16> rounded(host.size());
  convert(DType::kBF16, rounded.data(), DType::kF32, host.data(), kCount);
  f32_ = upload(host.data(), host.size() * sizeof(float));
  bf16_ = upload(rounded.data(), rounded.size() * sizeof(bf16));
}

BenchPattern::~BenchPattern() {
  device_.release(f32_, kCount * sizeof(float));
  device_.release(bf16_, kCount * sizeof(bf16));
}

void BenchPattern::fill(const TensorView& view) const {
  const char* source = static_cast<const char*>(view.dtype == DType::kF32 ? f32_ : bf16_);
  const size_t period = kCount * dtype_bytes(view.dtype);
  for (size_t at = 0; at < view.bytes(); at += period) {
    device_.copy(view.as<char>() + at, source, std::min(period, view.bytes() - at));
  }
}

void BenchPattern::fill_ids(const TensorView& view, int64_t vocabulary) const {
  std::vector<int32_t> ids(static_cast<size_t>(view.elements()));
  const Philox random(2, stream_of("bench"));
  for (size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<int32_t>(random.below(static_cast<uint64_t>(vocabulary), i));
  }
  device_.upload(view.data, ids.data(), view.bytes());
}

void* BenchPattern::upload(const void* host, size_t bytes) {
  void* block = device_.allocate(bytes);
  if (!block) throw OutOfMemory(device_.name() + ": no memory for a benchmark");
  device_.upload(block, host, bytes);
  return block;
}

BenchOperands::BenchOperands(Device& device, const BenchPattern& pattern, const GpuOpCase& op_case)
    : case_(op_case), op_(find_op(op_case.op)), types_(types_of(op_case)), blocks_(device) {
  const OpSignature signature = op_.infer(op_case.attrs, types_);
  for (size_t i = 0; i < types_.size(); ++i) {
    const bool ids = static_cast<int>(i) == op_case.ids;
    in_.push_back(make(types_[i]));
    ids ? pattern.fill_ids(in_.back(), op_case.vocabulary) : pattern.fill(in_.back());
    const bool gradient = op_.differentiable >> i & 1u;
    din_.push_back(gradient ? GradView{make(types_[i]), false} : GradView{});
  }
  for (const TensorType& type : signature.out) {
    out_.push_back(make(type));
    dout_.push_back(make(type));
    pattern.fill(dout_.back());
  }
  for (const TensorType& type : signature.saved) saved_.push_back(make(type));
}

BenchOperands::Blocks::~Blocks() {
  for (const auto& [block, bytes] : blocks_) device_.release(block, bytes);
}

void* BenchOperands::Blocks::take(size_t bytes, const std::string& op) {
  void* block = device_.allocate(bytes);
  if (!block) throw OutOfMemory(device_.name() + ": no memory for the operands of " + op);
  blocks_.emplace_back(block, bytes);
  return block;
}

void BenchOperands::run(bool backward) {
  const OpCall call{&case_.attrs, in_, out_, saved_, nullptr};
  const OpKernels& kernels = gpu_backend().kernels(case_.op);
  backward ? kernels.backward(call, dout_, din_) : kernels.forward(call);
}

void BenchOperands::run_gradient(size_t input) {
  std::vector<GradView> one(din_.size());
  one[input] = din_[input];
  gpu_backend().kernels(case_.op).backward({&case_.attrs, in_, out_, saved_, nullptr}, dout_, one);
}

std::vector<TensorType> BenchOperands::types_of(const GpuOpCase& op_case) {
  std::vector<TensorType> types;
  for (size_t i = 0; i < op_case.shapes.size(); ++i) {
    types.push_back(
        {op_case.shapes[i], static_cast<int>(i) == op_case.ids ? DType::kI32 : DType::kBF16});
  }
  return types;
}

TensorView BenchOperands::make(const TensorType& type) {
  return {blocks_.take(static_cast<size_t>(type.bytes()), op_.name), type.shape, type.dtype};
}

}  // namespace vitrine

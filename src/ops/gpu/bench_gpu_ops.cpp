// The micro benchmark of the GPU rows.
#include "ops/gpu/bench_gpu_ops.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>

#include "core/device.h"
#include "core/error.h"
#include "core/format.h"
#include "core/philox.h"
#include "gpu/gpu.h"
#include "gpu/timing.h"
#include "ops/gpu/bench_gpu_cases.h"

namespace vitrine {
namespace {

// Random values that tensors are cut from, drawn once.
class Pattern {
 public:
  explicit Pattern(Device& device) : device_(device) {
    std::vector<float> host(kCount);
    const Philox random(1, stream_of("bench"));
    for (size_t i = 0; i < host.size(); ++i) host[i] = static_cast<float>(random.normal(i));
    std::vector<bf16> rounded(host.size());
    convert(DType::kBF16, rounded.data(), DType::kF32, host.data(), kCount);
    f32_ = upload(host.data(), host.size() * sizeof(float));
    bf16_ = upload(rounded.data(), rounded.size() * sizeof(bf16));
  }
  ~Pattern() {
    device_.release(f32_, kCount * sizeof(float));
    device_.release(bf16_, kCount * sizeof(bf16));
  }
  Pattern(const Pattern&) = delete;
  Pattern& operator=(const Pattern&) = delete;

  void fill(const TensorView& view) const {
    const char* source = static_cast<const char*>(view.dtype == DType::kF32 ? f32_ : bf16_);
    const size_t period = kCount * dtype_bytes(view.dtype);
    for (size_t at = 0; at < view.bytes(); at += period) {
      device_.copy(view.as<char>() + at, source, std::min(period, view.bytes() - at));
    }
  }
  void fill_ids(const TensorView& view, int64_t vocabulary) const {
    std::vector<int32_t> ids(static_cast<size_t>(view.elements()));
    const Philox random(2, stream_of("bench"));
    for (size_t i = 0; i < ids.size(); ++i) {
      ids[i] = static_cast<int32_t>(random.below(static_cast<uint64_t>(vocabulary), i));
    }
    device_.upload(view.data, ids.data(), view.bytes());
  }

 private:
  static constexpr size_t kCount = (size_t{1} << 20) + 7;

  void* upload(const void* host, size_t bytes) {
    void* block = device_.allocate(bytes);
    if (!block) throw OutOfMemory(device_.name() + ": no memory for a benchmark");
    device_.upload(block, host, bytes);
    return block;
  }

  Device& device_;
  void *f32_ = nullptr, *bf16_ = nullptr;
};

// Operands of one call, in the GPU's memory.
class Operands {
 public:
  Operands(Device& device, const Pattern& pattern, const GpuOpCase& c)
      : device_(device), case_(c), op_(find_op(c.op)), types_(types_of(c)) {
    const OpSignature signature = op_.infer(c.attrs, types_);
    for (size_t i = 0; i < types_.size(); ++i) {
      const bool ids = static_cast<int>(i) == c.ids;
      in_.push_back(make(types_[i]));
      ids ? pattern.fill_ids(in_.back(), c.vocabulary) : pattern.fill(in_.back());
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
  ~Operands() {
    for (const auto& [block, bytes] : blocks_) device_.release(block, bytes);
  }
  Operands(const Operands&) = delete;
  Operands& operator=(const Operands&) = delete;

  void run(bool backward) {
    const OpCall call{&case_.attrs, in_, out_, saved_, nullptr};
    const OpKernels& kernels = gpu_backend().kernels(case_.op);
    backward ? kernels.backward(call, dout_, din_) : kernels.forward(call);
  }
  // The gradient of one input alone.
  void run_gradient(size_t input) {
    std::vector<GradView> one(din_.size());
    one[input] = din_[input];
    gpu_backend().kernels(case_.op).backward(
        {&case_.attrs, in_, out_, saved_, nullptr}, dout_, one);
  }

  static std::vector<TensorType> types_of(const GpuOpCase& c) {
    std::vector<TensorType> types;
    for (size_t i = 0; i < c.shapes.size(); ++i) {
      types.push_back({c.shapes[i], static_cast<int>(i) == c.ids ? DType::kI32 : DType::kBF16});
    }
    return types;
  }

 private:
  TensorView make(const TensorType& type) {
    const size_t bytes = static_cast<size_t>(type.bytes());
    void* block = device_.allocate(bytes);
    if (!block) throw OutOfMemory(device_.name() + ": no memory for the operands of " + op_.name);
    blocks_.emplace_back(block, bytes);
    return {block, type.shape, type.dtype};
  }

  Device& device_;
  const GpuOpCase& case_;
  const OpDef& op_;
  std::vector<TensorType> types_;
  std::vector<std::pair<void*, size_t>> blocks_;
  std::vector<TensorView> in_, out_, saved_, dout_;
  std::vector<GradView> din_;
};

// Bandwidths of copies by size, each measured once.
class Copies {
 public:
  double gbps(double bytes) {
    const double step = bytes < (1 << 24) ? 1 << 16 : 1 << 20;
    const auto size =
        static_cast<size_t>(std::clamp(std::round(bytes / step) * step, step, 0x1p31));
    double& known = known_[size];
    if (known == 0) known = gpu::copy_bandwidth(size) * 1e-9;
    return known;
  }

 private:
  std::map<size_t, double> known_;
};

// The two products of linear's backward and its bias gradient, each alone.
void time_products(const GpuOpCase& c,
                   const std::vector<TensorType>& types,
                   const std::string& shapes,
                   int samples,
                   std::vector<std::unique_ptr<Operands>>& operands,
                   Copies& copies,
                   std::vector<GpuOpTiming>& timings) {
  const char* names[] = {"linear dx", "linear dw", "linear dbias"};
  const OpDef& op = find_op(c.op);
  const double dy_bytes = static_cast<double>(op.infer(c.attrs, types).out[0].bytes());
  for (size_t input = 0; input < types.size(); ++input) {
    const double ns = gpu::median_ns(
        static_cast<int>(operands.size()),
        samples,
        [&](int set) { operands[static_cast<size_t>(set)]->run(false); },
        [&](int set) { operands[static_cast<size_t>(set)]->run_gradient(input); });
    const bool product = input < 2;
    const double bytes =
        dy_bytes + (product ? static_cast<double>(types[0].bytes() + types[1].bytes()) : 0);
    const double flops = product ? op.forward_cost(c.attrs, types).flops : 0;
    timings.push_back(
        {names[input], shapes, true, ns, bytes / ns, flops / ns * 1e-3, copies.gbps(bytes)});
  }
}

void time_case(Device& device,
               const Pattern& pattern,
               const GpuOpCase& c,
               int samples,
               Copies& copies,
               std::vector<GpuOpTiming>& timings) {
  const OpDef& op = find_op(c.op);
  const auto types = Operands::types_of(c);
  const int sets = gpu::sets_beyond_cache(op.forward_cost(c.attrs, types).bytes);
  std::vector<std::unique_ptr<Operands>> operands;
  for (int i = 0; i < sets; ++i) {
    operands.push_back(std::make_unique<Operands>(device, pattern, c));
  }
  std::vector<std::string> shapes;
  for (const Shape& shape : c.shapes) shapes.push_back(shape.str());
  if (c.attrs.has("fp8")) shapes.push_back("fp8");
  for (const bool backward : {false, true}) {
    // Backward may overwrite what forward saved, so a forward comes before each.
    const double ns = gpu::median_ns(
        sets,
        samples,
        [&](int set) { operands[static_cast<size_t>(set)]->run(false); },
        [&](int set) { operands[static_cast<size_t>(set)]->run(backward); });
    const Cost cost = (backward ? op.backward_cost : op.forward_cost)(c.attrs, types);
    timings.push_back({c.op,
                       join(shapes, " "),
                       backward,
                       ns,
                       cost.bytes / ns,
                       cost.matmul ? cost.flops / ns * 1e-3 : 0,
                       copies.gbps(cost.bytes)});
  }
  if (c.op == "linear")
    time_products(c, types, join(shapes, " "), samples, operands, copies, timings);
  device.synchronize();
}

}  // namespace

std::vector<GpuOpTiming> bench_gpu_ops(const GpuBenchOptions& options) {
  if (!options.only.empty()) find_op(options.only);
  const auto device = make_gpu_device(0);
  device->enter_lane(0);
  const Pattern pattern(*device);
  std::vector<GpuOpTiming> timings;
  Copies copies;
  for (const GpuOpCase& c : gpu_op_cases()) {
    if (!options.only.empty() && c.op != options.only) continue;
    if (!gpu_backend().has(c.op)) continue;
    time_case(*device, pattern, c, std::max(1, options.samples), copies, timings);
  }
  device->synchronize();
  return timings;
}

double bench_gpu_copy() {
  const auto device = make_gpu_device(0);
  device->enter_lane(0);
  return gpu::copy_bandwidth();
}

}  // namespace vitrine

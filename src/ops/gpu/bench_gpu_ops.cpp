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

namespace vitrine {
namespace {

struct GpuOpCase {
  std::string op;
  Attrs attrs;
  std::vector<Shape> shapes;
  int ids = -1;  // the input that holds ids below `vocabulary`
  int64_t vocabulary = 0;
};

Attrs attention(int heads, int kv_heads, int head_dim, int axis, int causal) {
  return {{"heads", heads},
          {"kv_heads", kv_heads},
          {"head_dim", head_dim},
          {"axis", axis},
          {"causal", causal}};
}

// Qwen2.5-1.5B: width 1536, 12 query and 2 + 2 key and value heads of 128, 8960 hidden features.
std::vector<GpuOpCase> language_cases() {
  const Shape x{4, 4096, 1536}, qkv{4, 4096, 2048}, hidden{4, 4096, 8960}, weight{1536};
  const Attrs eps{{"eps", 1e-6}};
  const int64_t words = 151936;
  return {
      {"rms_norm", eps, {x, weight}},
      {"add_rms_norm", eps, {x, x, weight}},
      {"layer_norm", eps, {x, weight, weight}},
      {"add_layer_norm", eps, {x, x, weight, weight}},
      {"rotary", {{"heads", 14}, {"head_dim", 128}, {"base", 1e6}, {"axis", 1}}, {qkv}},
      {"qk_norm",
       {{"heads", 12}, {"kv_heads", 2}, {"head_dim", 128}, {"eps", 1e-6}},
       {qkv, {128}, {128}}},
      {"swiglu", {}, {{4, 4096, 17920}}},
      {"gelu", {{"form", 0}}, {hidden}},
      {"gelu", {{"form", 1}}, {hidden}},
      {"gelu", {{"form", 2}}, {hidden}},
      {"add", {}, {x, x}},
      {"scale", {{"factor", 0.5}}, {x}},
      {"embedding", {}, {{4, 4096}, {words, 1536}}, 0, words},
      {"mse", {}, {x, x}},
      {"l1", {}, {x, x}},
      {"linear", {}, {x, {2048, 1536}, {2048}}},
      {"linear", {}, {x, {1536, 1536}}},
      {"linear", {}, {x, {17920, 1536}}},
      {"linear", {}, {hidden, {1536, 8960}}},
      {"linear", {{"fp8", 1}}, {x, {1536, 1536}}},
      {"linear", {{"fp8", 1}}, {x, {17920, 1536}}},
      {"linear", {{"fp8", 1}}, {hidden, {1536, 8960}}},
      {"attention", attention(12, 2, 128, 1, 1), {qkv}},
      {"linear_cross_entropy",
       {{"chunk_rows", 4096}, {"gradient_in_forward", 1}},
       {x, {words, 1536}, {4, 4096}},
       2,
       words},
  };
}

// A world model: 16 clips of 16 frames of 64 tokens, width 512.
std::vector<GpuOpCase> world_cases() {
  const Shape z{16, 16, 64, 512}, channel{512}, frames{64, 16, 64, 64, 3};
  const Attrs eps{{"eps", 1e-5}};
  return {
      {"layer_norm", eps, {z, channel, channel}},
      {"add_layer_norm", eps, {z, z, channel, channel}},
      {"gelu", {{"form", 0}}, {{16, 16, 64, 2048}}},
      {"patchify", {{"patch", 8}}, {frames}},
      {"unpatchify", {{"patch", 8}, {"height", 64}, {"width", 64}}, {{64, 16, 64, 192}}},
      {"add_broadcast", {{"dims", 0b1100}}, {z, {64, 512}}},
      {"add_broadcast", {{"dims", 0b1010}}, {z, {16, 512}}},
      {"frame_difference", {}, {z}},
      {"gated_sigmoid", {}, {z, channel, channel}},
      {"time_slice", {{"begin", 0}, {"count", 15}}, {z}},
      {"shift_window", {}, {z, z}},
      {"prepend_token", {}, {{256, 64, 512}, channel}},
      {"take_token", {{"index", 0}}, {{256, 65, 512}}},
      {"mean_pool", {}, {{256, 64, 512}}},
      {"flatten_frames", {}, {z}},
      {"attention", attention(8, 8, 64, 2, 0), {{16, 16, 64, 1536}}},
      {"attention", attention(8, 8, 64, 1, 1), {{16, 16, 64, 1536}}},
  };
}

// A step of the world model `small`: 32 clips of 16 frames of 256 tokens, width 640, 10 heads
// of 64.
std::vector<GpuOpCase> clip_cases() {
  const Shape x{32, 16, 256, 640}, qkv{32, 16, 256, 1920};
  const Attrs eps{{"eps", 1e-6}},
      heads{{"heads", 10}, {"kv_heads", 10}, {"head_dim", 64}, {"eps", 1e-6}};
  Attrs turned = heads;
  turned.set("base", 1e4);
  turned.set("axis", 1);
  return {
      {"rms_norm", eps, {x, {640}}},
      {"add_rms_norm", eps, {x, x, {640}}},
      {"qk_norm", heads, {qkv, {64}, {64}}},
      {"qk_norm", turned, {qkv, {64}, {64}}},
      {"swiglu", {}, {{32, 16, 256, 3424}}},
      {"attention", attention(10, 10, 64, 2, 0), {qkv}},
      {"attention", attention(10, 10, 64, 1, 1), {qkv}},
  };
}

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
    const double step = 1 << 20;
    const auto size = static_cast<size_t>(std::clamp(std::round(bytes / step), 1.0, 2048.0) * step);
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
  for (const auto& cases : {language_cases(), world_cases(), clip_cases()}) {
    for (const GpuOpCase& c : cases) {
      if (!options.only.empty() && c.op != options.only) continue;
      if (!gpu_backend().has(c.op)) continue;
      time_case(*device, pattern, c, std::max(1, options.samples), copies, timings);
    }
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

// Operations: what each one takes, gives, keeps for its backward and costs; free of any backend.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/shape.h"

namespace vitrine {

// Named numbers that fix an operation besides its inputs ("heads", "causal", "eps").
class Attrs {
 public:
  Attrs() = default;
  Attrs(std::initializer_list<std::pair<std::string, double>> values) : values_(values) {}
  void set(const std::string& name, double value);
  bool has(std::string_view name) const;
  double number(std::string_view name) const;  // throws ShapeError naming the attribute when absent
  double number(std::string_view name, double fallback) const;
  int64_t integer(std::string_view name) const { return static_cast<int64_t>(number(name)); }
  int64_t integer(std::string_view name, int64_t fallback) const {
    return static_cast<int64_t>(number(name, static_cast<double>(fallback)));
  }
  const std::vector<std::pair<std::string, double>>& values() const { return values_; }
  bool operator==(const Attrs&) const = default;

 private:
  std::vector<std::pair<std::string, double>> values_;
};

struct TensorType {
  Shape shape;
  DType dtype = DType::kF32;
  int64_t bytes() const { return shape.elements() * static_cast<int64_t>(dtype_bytes(dtype)); }
  bool operator==(const TensorType&) const = default;
};

// What infer() answers.
struct OpSignature {
  std::vector<TensorType> out;
  std::vector<TensorType> saved;   // kept from forward to backward besides inputs and outputs
  int64_t forward_workspace = 0;   // bytes of scratch during forward
  int64_t backward_workspace = 0;  // bytes of scratch during backward
};

// Floating-point operations and bytes moved to and from memory, of one direction.
struct Cost {
  double flops = 0;
  double bytes = 0;
  bool matmul = false;  // runs at matrix-product speed
};

// The contract of one operation, the same on every backend. Masks have bit i for input (output) i.
struct OpDef {
  std::string name;
  int min_inputs = 1, max_inputs = 1;
  uint32_t differentiable = 1;      // inputs that can have a gradient
  uint32_t backward_reads_in = 0;   // inputs whose values backward needs
  uint32_t backward_reads_out = 0;  // outputs whose values backward needs
  // Throws ShapeError, beginning with the operation's name, when inputs do not fit.
  OpSignature (*infer)(const Attrs&, std::span<const TensorType> in) = nullptr;
  Cost (*forward_cost)(const Attrs&, std::span<const TensorType> in) = nullptr;
  Cost (*backward_cost)(const Attrs&, std::span<const TensorType> in) = nullptr;
  // Saved tensors that forward takes null views for where no backward follows it (evaluation, or a
  // forward that is run again later); it then does none of the work that is for backward alone.
  uint32_t optional_saved = 0;
};

// One call's operands. Absent optional inputs, and values that backward does not read, are null
// views.
struct OpCall {
  const Attrs* attrs = nullptr;
  std::span<const TensorView> in, out, saved;
  void* workspace = nullptr;  // 64-byte aligned
};

// Where a gradient goes: written over, or added to. A null view is not wanted.
struct GradView {
  TensorView view;
  bool accumulate = false;
  explicit operator bool() const { return static_cast<bool>(view); }
};

// One row of a backend's table. Arithmetic is in fp32 at least (fp64 for f64); results are rounded
// once to the output's dtype. Gradients of parameters may have another dtype (f32 under bf16). Of
// several outputs' gradients some may be null, meaning zero. Backward may overwrite `saved`.
struct OpKernels {
  void (*forward)(const OpCall&) = nullptr;
  void (*backward)(const OpCall&,
                   std::span<const TensorView> dout,
                   std::span<const GradView> din) = nullptr;
};

// Two operations in a row, where the second's first input is the first's first output, that a
// backend can run as one. Each part gets its call as it would alone, except that the value between
// has no gradient of its own: din of `second` has none for it, and `first` gets no dout. False when
// it cannot run these operands, with nothing done: they run one by one then.
struct PairedOps {
  std::string first, second;
  bool (*forward)(const OpCall& first, const OpCall& second) = nullptr;
  bool (*backward)(const OpCall& first,
                   std::span<const GradView> first_din,
                   const OpCall& second,
                   std::span<const TensorView> second_dout,
                   std::span<const GradView> second_din) = nullptr;
};

// The registry. Built-in operations are there from the start; more may be added before the first
// tape is recorded (see docs/howto/add_op.md). find_op throws ConfigError with the nearest name.
const OpDef& find_op(std::string_view name);
void register_op(const OpDef& op);
std::vector<std::string> op_names();

// A backend's table: which kernels run an operation.
class Backend {
 public:
  explicit Backend(std::string name) : name_(std::move(name)) {}
  const std::string& name() const { return name_; }
  void add(std::string op, OpKernels kernels);
  // Throws ConfigError when this backend has no row for the operation.
  const OpKernels& kernels(std::string_view op) const;
  bool has(std::string_view op) const;
  // Null when it has no kernel for both at once.
  void add_pair(PairedOps pair) { pairs_.push_back(std::move(pair)); }
  const PairedOps* pair(std::string_view first, std::string_view second) const;
  // Whether its kernels take scratch of their own and leave OpCall::workspace alone.
  bool brings_workspace() const { return brings_workspace_; }
  void set_brings_workspace() { brings_workspace_ = true; }

 private:
  std::string name_;
  bool brings_workspace_ = false;
  std::vector<std::pair<std::string, OpKernels>> rows_;
  std::vector<PairedOps> pairs_;
};

// Plain loops in double: the oracle. Linked from ops/cpu.
Backend& reference_backend();
// oneDNN matrix products and vectorised loops.
Backend& cpu_backend();
// cuBLASLt, cuDNN and own kernels, in the stream of the calling thread's lane (gpu/runtime.h). Ids
// and targets outside the vocabulary show when the device is synchronised. Linked from ops/gpu;
// throws DeviceError in a build without GPU code.
Backend& gpu_backend();

}  // namespace vitrine

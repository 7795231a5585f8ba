// Operands for timing operations on a GPU, filled with random values.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/device.h"
#include "ops/gpu/bench_gpu_cases.h"

namespace vitrine {

// Random values that tensors are cut from, drawn once; in the calling thread's lane. Throws
// OutOfMemory.
class BenchPattern {
 public:
  explicit BenchPattern(Device& device);
  ~BenchPattern();
  BenchPattern(const BenchPattern&) = delete;
  BenchPattern& operator=(const BenchPattern&) = delete;

  // f32 or bf16.
  void fill(const TensorView& view) const;
  void fill_ids(const TensorView& view, int64_t vocabulary) const;

 private:
  static constexpr size_t kCount = (size_t{1} << 20) + 7;

  void* upload(const void* host, size_t bytes);

  Device& device_;
  void *f32_ = nullptr, *bf16_ = nullptr;
};

// Operands of one call in bf16 (ids in i32), in the GPU's memory. `op_case` must outlive them.
// Throws OutOfMemory.
class BenchOperands {
 public:
  BenchOperands(Device& device, const BenchPattern& pattern, const GpuOpCase& op_case);
  void run(bool backward);
  // The gradient of one input alone.
  void run_gradient(size_t input);

  static std::vector<TensorType> types_of(const GpuOpCase& op_case);

 private:
  // Given back also where making the operands throws.
  class Blocks {
   public:
    explicit Blocks(Device& device) : device_(device) {}
    ~Blocks();
    Blocks(const Blocks&) = delete;
    Blocks& operator=(const Blocks&) = delete;
    void* take(size_t bytes, const std::string& op);

   private:
    Device& device_;
    std::vector<std::pair<void*, size_t>> blocks_;
  };

  TensorView make(const TensorType& type);

  const GpuOpCase& case_;
  const OpDef& op_;
  std::vector<TensorType> types_;
  Blocks blocks_;
  std::vector<TensorView> in_, out_, saved_, dout_;
  std::vector<GradView> din_;
};

}  // namespace vitrine

// Operation graphs through cuDNN's backend API: tensors, operations, a plan that runs them as one
// kernel.
#pragma once

#include <cudnn.h>

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace vitrine::gpu {

// What cuDNN answered; a graph that it does not take is no fault of the program.
struct CudnnFailure {
  std::string text;
};
// Throws CudnnFailure.
void check_cudnn(cudnnStatus_t status, const char* call);

// Of the calling thread's device, in the calling thread's stream.
cudnnHandle_t cudnn_handle();

class CudnnDescriptor {
 public:
  CudnnDescriptor() = default;
  explicit CudnnDescriptor(cudnnBackendDescriptorType_t type);
  ~CudnnDescriptor();
  CudnnDescriptor(CudnnDescriptor&& other) noexcept
      : handle_(std::exchange(other.handle_, nullptr)) {}
  CudnnDescriptor& operator=(CudnnDescriptor&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  cudnnBackendDescriptor_t get() const { return handle_; }
  void set(cudnnBackendAttributeName_t name,
           cudnnBackendAttributeType_t type,
           int64_t count,
           const void* values);
  void finish();

 private:
  cudnnBackendDescriptor_t handle_ = nullptr;
};

using CudnnDims = std::array<int64_t, 4>;  // batch, head, row, column

// A graph with the engine that runs it.
class CudnnPlan {
 public:
  size_t workspace_bytes() const { return static_cast<size_t>(workspace_bytes_); }
  // Pointers to real tensors and to scalars (on the host), by the numbers that tensor() and
  // scalar() gave. In the calling thread's stream.
  void run(const std::vector<std::pair<int64_t, void*>>& operands, void* workspace) const;

 private:
  friend class CudnnGraph;
  CudnnDescriptor plan_;
  int64_t workspace_bytes_ = 0;
};

// Operations in the order of the calls: cuDNN recognises attention by its order.
class CudnnGraph {
 public:
  // A tensor is named by its number. Real ones are operands of run().
  int64_t tensor(cudnnDataType_t type, const CudnnDims& dims, const CudnnDims& strides);
  int64_t hidden(cudnnDataType_t type, const CudnnDims& dims);  // contiguous, never in memory
  int64_t hidden(cudnnDataType_t type, const CudnnDims& dims, const CudnnDims& strides);
  int64_t scalar();  // f32, passed by value

  void matmul(int64_t a, int64_t b, int64_t c);
  void pointwise(cudnnPointwiseMode_t mode, int64_t x, int64_t y);
  void pointwise(cudnnPointwiseMode_t mode, int64_t x, int64_t b, int64_t y);
  // y = index along `axis`
  void index(int64_t x, int64_t axis, int64_t y);
  // y = x where t, else b; t = a >= c
  void compare_ge(int64_t a, int64_t c, int64_t t);
  void select(int64_t x, int64_t b, int64_t t, int64_t y);
  void reduce(cudnnReduceTensorOp_t mode, int64_t x, int64_t y);
  void reshape(int64_t x, int64_t y);

  // The first engine that the library's heuristics name and that finishes. Throws CudnnFailure.
  CudnnPlan plan();

 private:
  int64_t add_tensor(cudnnDataType_t type,
                     const CudnnDims& dims,
                     const CudnnDims& strides,
                     bool is_hidden,
                     bool by_value);
  const CudnnDescriptor& at(int64_t tensor) const {
    return tensors_[static_cast<size_t>(tensor - 1)];
  }
  struct Pointwise {
    cudnnPointwiseMode_t mode;
    cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    int64_t axis = -1;
    int64_t x = 0, b = 0, t = 0, y = 0;  // 0: none
  };
  void add_pointwise(const Pointwise& p);
  bool try_engines(cudnnBackendHeurMode_t mode, const CudnnDescriptor& graph, CudnnPlan& plan);

  std::vector<CudnnDescriptor> tensors_, attributes_, operations_;
  std::string last_failure_;
};

}  // namespace vitrine::gpu

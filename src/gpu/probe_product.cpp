// One cuBLASLt product: D = A^T B with both operands contiguous along the sum, the layout that
// every dtype has. The fastest of the candidates that the library names is what is timed.
#include "gpu/probe_product.h"

#include <cublasLt.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "core/error.h"
#include "gpu/runtime.h"

namespace vitrine::gpu {
namespace {

constexpr size_t kWorkspaceBytes = size_t{64} << 20;
constexpr int kCandidates = 8;

struct Types {
  cublasComputeType_t compute;
  cudaDataType_t in, out;
  double tolerance;
};

// Tolerances: f32 and its sums 2^-24 a term; tf32 has 11 significant bits; the others are exact up
// to the rounding of the output (bf16 2^-9, f16 2^-12), fp8 also sums in fewer bits.
Types types_of(const std::string& dtype) {
  if (dtype == "f32") return {CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_32F, 1e-5};
  if (dtype == "tf32") return {CUBLAS_COMPUTE_32F_FAST_TF32, CUDA_R_32F, CUDA_R_32F, 2e-3};
  if (dtype == "bf16") return {CUBLAS_COMPUTE_32F, CUDA_R_16BF, CUDA_R_16BF, 5e-3};
  if (dtype == "f16") return {CUBLAS_COMPUTE_32F, CUDA_R_16F, CUDA_R_16F, 1e-3};
  if (dtype == "f8_e4m3") return {CUBLAS_COMPUTE_32F, CUDA_R_8F_E4M3, CUDA_R_16BF, 1e-2};
  throw ConfigError("the probe knows no dtype '" + dtype + "'");
}

int64_t element_bytes(cudaDataType_t type) {
  return type == CUDA_R_32F ? 4 : type == CUDA_R_8F_E4M3 ? 1 : 2;
}

void check_blas(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw DeviceError(std::string(call) + " failed: " + cublasLtGetStatusString(status));
}

class DeviceArray {
 public:
  explicit DeviceArray(int64_t bytes) {
    VITRINE_GPU_CHECK(cudaMalloc(&data_, static_cast<size_t>(std::max<int64_t>(bytes, 1))));
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  void* get() const { return data_; }

 private:
  void* data_ = nullptr;
};

template <typename T, cublasStatus_t (*End)(T)>
struct Ended {
  using pointer = T;
  void operator()(T handle) const { End(handle); }
};
template <typename T, cublasStatus_t (*End)(T)>
using Handle = std::unique_ptr<T, Ended<T, End>>;

using LtHandle = Handle<cublasLtHandle_t, cublasLtDestroy>;
using LtDescriptor = Handle<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using LtLayout = Handle<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using LtPreference = Handle<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

LtLayout layout(cudaDataType_t type, int64_t rows, int64_t columns) {
  cublasLtMatrixLayout_t made = nullptr;
  check_blas(cublasLtMatrixLayoutCreate(
                 &made, type, static_cast<uint64_t>(rows), static_cast<uint64_t>(columns), rows),
             "cublasLtMatrixLayoutCreate");
  return LtLayout(made);
}

// A [k, m] and B [k, n], D [m, n], all column-major.
class Product {
 public:
  Product(const Types& types, int64_t m, int64_t n, int64_t k)
      : types_(types),
        m_(m),
        n_(n),
        k_(k),
        a_(m * k * element_bytes(types.in)),
        b_(n * k * element_bytes(types.in)),
        d_(m * n * element_bytes(types.out)),
        workspace_(kWorkspaceBytes) {
    cublasLtHandle_t handle = nullptr;
    check_blas(cublasLtCreate(&handle), "cublasLtCreate");
    handle_.reset(handle);
    cublasLtMatmulDesc_t descriptor = nullptr;
    check_blas(cublasLtMatmulDescCreate(&descriptor, types.compute, CUDA_R_32F),
               "cublasLtMatmulDescCreate");
    descriptor_.reset(descriptor);
    const cublasOperation_t transposed = CUBLAS_OP_T;
    check_blas(cublasLtMatmulDescSetAttribute(
                   descriptor, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof(transposed)),
               "CUBLASLT_MATMUL_DESC_TRANSA");
    a_layout_ = layout(types.in, k, m);
    b_layout_ = layout(types.in, k, n);
    d_layout_ = layout(types.out, m, n);
    fill_random(types.in, a_.get(), m * k, 11);
    fill_random(types.in, b_.get(), n * k, 23);
    find_candidates();
  }

  bool possible() const { return !candidates_.empty(); }

  void run(size_t candidate) {
    const float one = 1, zero = 0;
    check_blas(cublasLtMatmul(handle_.get(),
                              descriptor_.get(),
                              &one,
                              a_.get(),
                              a_layout_.get(),
                              b_.get(),
                              b_layout_.get(),
                              &zero,
                              d_.get(),
                              d_layout_.get(),
                              d_.get(),
                              d_layout_.get(),
                              &candidates_[candidate].algo,
                              workspace_.get(),
                              kWorkspaceBytes,
                              stream()),
               "cublasLtMatmul");
  }

  // |got - expected| / |expected|.
  double error() {
    run(0);
    const std::vector<double> a = host(types_.in, a_.get(), m_ * k_);
    const std::vector<double> b = host(types_.in, b_.get(), n_ * k_);
    const std::vector<double> d = host(types_.out, d_.get(), m_ * n_);
    double wrong = 0, all = 0;
    for (int64_t j = 0; j < n_; ++j) {
      for (int64_t i = 0; i < m_; ++i) {
        double sum = 0;
        for (int64_t l = 0; l < k_; ++l)
          sum += a[static_cast<size_t>(i * k_ + l)] * b[static_cast<size_t>(j * k_ + l)];
        const double difference = d[static_cast<size_t>(j * m_ + i)] - sum;
        wrong += difference * difference;
        all += sum * sum;
      }
    }
    const double relative = std::sqrt(wrong / all);
    return std::isfinite(relative) ? relative : 1e30;
  }

  // Of the fastest candidate: the median of `times` runs after two.
  double seconds(int times) {
    size_t best = 0;
    double least = 0;
    for (size_t c = 0; c < candidates_.size(); ++c) {
      const double took = median(c, 1, 3);
      if (c == 0 || took < least) best = c, least = took;
    }
    return median(best, 2, times);
  }

 private:
  void find_candidates() {
    cublasLtMatmulPreference_t made = nullptr;
    check_blas(cublasLtMatmulPreferenceCreate(&made), "cublasLtMatmulPreferenceCreate");
    const LtPreference preference(made);
    const size_t bytes = kWorkspaceBytes;
    check_blas(cublasLtMatmulPreferenceSetAttribute(
                   made, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof(bytes)),
               "CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES");
    candidates_.resize(kCandidates);
    int found = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle_.get(),
                                                                 descriptor_.get(),
                                                                 a_layout_.get(),
                                                                 b_layout_.get(),
                                                                 d_layout_.get(),
                                                                 d_layout_.get(),
                                                                 made,
                                                                 kCandidates,
                                                                 candidates_.data(),
                                                                 &found);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED)
      found = 0;
    else
      check_blas(status, "cublasLtMatmulAlgoGetHeuristic");
    candidates_.resize(static_cast<size_t>(found));
    std::erase_if(candidates_, [](const auto& c) { return c.state != CUBLAS_STATUS_SUCCESS; });
  }

  double median(size_t candidate, int before, int times) {
    const Event start = Event::make(true), end = Event::make(true);
    std::vector<double> all;
    for (int i = -before; i < times; ++i) {
      VITRINE_GPU_CHECK(cudaEventRecord(start.get(), stream()));
      run(candidate);
      VITRINE_GPU_CHECK(cudaEventRecord(end.get(), stream()));
      VITRINE_GPU_CHECK(cudaEventSynchronize(end.get()));
      float milliseconds = 0;
      VITRINE_GPU_CHECK(cudaEventElapsedTime(&milliseconds, start.get(), end.get()));
      if (i >= 0) all.push_back(static_cast<double>(milliseconds) * 1e-3);
    }
    std::sort(all.begin(), all.end());
    return all[all.size() / 2];
  }

  static std::vector<double> host(cudaDataType_t type, const void* data, int64_t count) {
    const DeviceArray wide(count * 8);
    widen(type, data, count, static_cast<double*>(wide.get()));
    std::vector<double> out(static_cast<size_t>(count));
    VITRINE_GPU_CHECK(
        cudaMemcpyAsync(out.data(), wide.get(), out.size() * 8, cudaMemcpyDeviceToHost, stream()));
    VITRINE_GPU_CHECK(cudaStreamSynchronize(stream()));
    return out;
  }

  const Types types_;
  const int64_t m_, n_, k_;
  const DeviceArray a_, b_, d_, workspace_;
  LtHandle handle_;
  LtDescriptor descriptor_;
  LtLayout a_layout_, b_layout_, d_layout_;
  std::vector<cublasLtMatmulHeuristicResult_t> candidates_;
};

}  // namespace

void probe_product(ProductProbe& product, int edge) {
  const Types types = types_of(product.dtype);
  product.tolerance = types.tolerance;
  product.edge = edge;
  try {
    {
      Product small(types, 96, 160, 288);
      if (!small.possible()) {
        product.refused = "cuBLASLt has no product of this dtype on this GPU";
        return;
      }
      product.error = small.error();
    }
    Product large(types, edge, edge, edge);
    if (!large.possible()) {
      product.refused = "cuBLASLt has no product of this size on this GPU";
      return;
    }
    const double cube = static_cast<double>(edge) * edge * edge;
    product.flops_per_s = 2 * cube / large.seconds(7);
  } catch (const Error& error) {
    product.refused = error.what();
  }
}

}  // namespace vitrine::gpu

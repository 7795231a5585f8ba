// Plans of matrix products: descriptors, candidates, their timing.
#include "ops/gpu/cublaslt.h"

#include <cublasLt.h>

#include <algorithm>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "core/error.h"
#include "gpu/capture_graph.h"
#include "gpu/runtime.h"
#include "ops/gpu/gemm_choices.h"
#include "ops/gpu/precision.h"
#include "ops/gpu/wgmma_matmul.h"

namespace vitrine::gpu {
namespace {

constexpr int kCandidates = 40;
constexpr int kTimedRuns = 4;
constexpr double kTimedFlops = 1e9;
// Large products run at the clock that the card's power allows, and what makes one fast in a step
// is how little energy it takes. So candidates that were fastest at first are timed again, each for
// long enough that the clock is its own: on a H200 power is held within some 30 ms of a change and
// swings for up to 100. Two rounds, the second backwards, so that each follows another.
constexpr double kFinalFlops = 2e10;
constexpr int kFinalistsEach = 4;  // the library's and own ones
constexpr int kFinalRounds = 2;
constexpr double kSettleMs = 60;
constexpr double kMeasureMs = 60;
constexpr double kHeatMs = 300;

void check_lt(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw DeviceError("GPU " + std::to_string(limits().device) + ": " + call + " failed (" +
                    cublasLtGetStatusString(status) + ")");
}
#define VITRINE_LT_CHECK(call) check_lt((call), #call)

cublasLtHandle_t handle() {
  static std::mutex mutex;
  static auto* all = new std::map<int, cublasLtHandle_t>;
  const int device = limits().device;
  const std::lock_guard lock(mutex);
  cublasLtHandle_t& made = (*all)[device];
  if (!made) VITRINE_LT_CHECK(cublasLtCreate(&made));
  return made;
}

cudaDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return CUDA_R_32F;
    case DType::kBF16:
      return CUDA_R_16BF;
    case DType::kF16:
      return CUDA_R_16F;
    case DType::kF64:
      return CUDA_R_64F;
    default:
      throw ConfigError(std::string("matmul: ") + dtype_name(dtype) + " is not a floating dtype");
  }
}

cudaDataType_t type_of(const Gemm& g, const Matrix& operand) {
  return operand.fp8 == Fp8::kNone   ? type_of(g.dtype)
         : operand.fp8 == Fp8::kE4M3 ? CUDA_R_8F_E4M3
                                     : CUDA_R_8F_E5M2;
}

// The largest power of two up to 256 that divides the address.
uint32_t alignment_of(const void* data) {
  const auto address = reinterpret_cast<uintptr_t>(data);
  return static_cast<uint32_t>(std::min<uintptr_t>(address & (~address + 1), 256) |
                               (!address) * 256);
}

// Of an operand. 8-bit ones are used as aligned to 16 bytes, which is all that their kernels ask.
uint32_t alignment_of(const Matrix& operand) {
  const uint32_t alignment = alignment_of(operand.data);
  return operand.fp8 == Fp8::kNone ? alignment : std::min<uint32_t>(alignment, 16);
}

GemmKey key_of(const Gemm& g) {
  return {g.m,
          g.n,
          g.k,
          g.a.transposed,
          g.b.transposed,
          g.a.stride,
          g.b.stride,
          g.d_stride,
          static_cast<int64_t>(g.dtype),
          static_cast<int64_t>(g.d_dtype),
          g.bias != nullptr,
          g.accumulate,
          g.scales != nullptr,
          g.dtype == DType::kF32 && tf32(),
          static_cast<int64_t>(g.a.fp8),
          static_cast<int64_t>(g.b.fp8),
          alignment_of(g.a),
          alignment_of(g.b),
          alignment_of(g.d),
          alignment_of(g.bias)};
}

// cuBLASLt is column-major, where a row-major matrix reads as its transpose: dᵀ = bᵀ aᵀ. So b is
// its first operand and a its second, m and n change places, and each keeps its own transposed
// flag. The bias runs along the rows of dᵀ, which is what the epilogue adds.
struct Plan {
  cublasLtMatmulDescOpaque_t operation{};
  cublasLtMatrixLayoutOpaque_t first{}, second{}, out{};
  GemmChoice choice;
  bool plain = false;    // the library has nothing for this shape
  bool settled = false;  // chosen, not only the first suggestion
};

template <typename T>
void set(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute, T value) {
  VITRINE_LT_CHECK(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof value));
}

void lay_out(cublasLtMatrixLayout_t layout,
             cudaDataType_t type,
             int64_t rows,
             int64_t columns,
             int64_t stride) {
  VITRINE_LT_CHECK(cublasLtMatrixLayoutInit(
      layout, type, static_cast<uint64_t>(rows), static_cast<uint64_t>(columns), stride));
}

// What of a description changes from call to call.
void point(const Gemm& g, Plan& plan) {
  if (g.bias) set(&plan.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, g.bias);
  if (g.b.inverse) set(&plan.operation, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, g.b.inverse);
  if (g.a.inverse) set(&plan.operation, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, g.a.inverse);
}

void describe(const Gemm& g, Plan& plan) {
  const bool f64 = g.dtype == DType::kF64;
  const auto compute = f64                                ? CUBLAS_COMPUTE_64F
                       : g.dtype == DType::kF32 && tf32() ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                          : CUBLAS_COMPUTE_32F;
  VITRINE_LT_CHECK(cublasLtMatmulDescInit(&plan.operation, compute, f64 ? CUDA_R_64F : CUDA_R_32F));
  set(&plan.operation, CUBLASLT_MATMUL_DESC_TRANSA, g.b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(&plan.operation, CUBLASLT_MATMUL_DESC_TRANSB, g.a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (g.bias) set(&plan.operation, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
  if (g.bias) set(&plan.operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(g.dtype));
  point(g, plan);
  if (g.scales)
    set(&plan.operation, CUBLASLT_MATMUL_DESC_POINTER_MODE, CUBLASLT_POINTER_MODE_DEVICE);
  lay_out(&plan.first,
          type_of(g, g.b),
          g.b.transposed ? g.k : g.n,
          g.b.transposed ? g.n : g.k,
          g.b.stride);
  lay_out(&plan.second,
          type_of(g, g.a),
          g.a.transposed ? g.m : g.k,
          g.a.transposed ? g.k : g.m,
          g.a.stride);
  lay_out(&plan.out, type_of(g.d_dtype), g.n, g.m, g.d_stride);
}

cublasStatus_t run(
    const Gemm& g, Plan& plan, const cublasLtMatmulAlgo_t& algorithm, void* d, void* scratch) {
  const float scales[] = {1, g.accumulate ? 1.0f : 0.0f};
  const double wide_scales[] = {1, g.accumulate ? 1.0 : 0.0};
  const bool f64 = g.dtype == DType::kF64;
  const char* alpha = static_cast<const char*>(g.scales);
  if (!alpha)
    alpha =
        f64 ? reinterpret_cast<const char*>(wide_scales) : reinterpret_cast<const char*>(scales);
  return cublasLtMatmul(handle(),
                        &plan.operation,
                        alpha,
                        g.b.data,
                        &plan.first,
                        g.a.data,
                        &plan.second,
                        alpha + (f64 ? sizeof(double) : sizeof(float)),
                        g.d,
                        &plan.out,
                        d,
                        &plan.out,
                        &algorithm,
                        scratch,
                        kGemmScratch,
                        stream());
}

std::vector<GemmChoice> candidates(const Gemm& g, Plan& plan) {
  cublasLtMatmulPreferenceOpaque_t preference{};
  VITRINE_LT_CHECK(cublasLtMatmulPreferenceInit(&preference));
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    VITRINE_LT_CHECK(
        cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof value));
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kGemmScratch);
  // Parts of a split sum are added in the compute type, so that the result is rounded once.
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
         static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(g.b));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(g.a));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(g.d));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(g.d));
  std::vector<cublasLtMatmulHeuristicResult_t> found(kCandidates);
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle(),
                                                               &plan.operation,
                                                               &plan.first,
                                                               &plan.second,
                                                               &plan.out,
                                                               &plan.out,
                                                               &preference,
                                                               kCandidates,
                                                               found.data(),
                                                               &count);
  std::vector<GemmChoice> all;
  if (status != CUBLAS_STATUS_SUCCESS) return all;
  for (int i = 0; i < count; ++i) {
    const auto& result = found[static_cast<size_t>(i)];
    if (result.state == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= kGemmScratch) {
      all.push_back({{}, result.algo});
    }
  }
  return all;
}

// Memory for the time of a measurement; null when there is none left.
struct Loan {
  explicit Loan(size_t bytes) {
    if (cudaMalloc(&data, bytes) == cudaSuccess) return;
    data = nullptr;
    cudaGetLastError();
  }
  ~Loan() {
    if (data) cudaFree(data);
  }
  Loan(const Loan&) = delete;
  Loan& operator=(const Loan&) = delete;
  void* data = nullptr;
};

// False when it cannot run.
bool run(const Gemm& g, Plan& plan, const GemmChoice& choice, void* d, void* scratch) {
  if (choice.own.tile_columns == 0) {
    return run(g, plan, choice.library, d, scratch) == CUBLAS_STATUS_SUCCESS;
  }
  wgmma_matmul(g, choice.own, d, scratch);
  return true;
}

// Milliseconds of one of several runs; negative when the candidate cannot run.
float timed(const Gemm& g, Plan& plan, const GemmChoice& choice, void* d, void* scratch, int runs) {
  static thread_local std::map<int, std::pair<Event, Event>> events;
  auto& [begin, end] = events[limits().device];
  if (!begin) begin = Event::make(true);
  if (!end) end = Event::make(true);
  if (!run(g, plan, choice, d, scratch)) return -1;
  VITRINE_GPU_CHECK(cudaEventRecord(begin.get(), stream()));
  for (int i = 0; i < runs; ++i) {
    if (!run(g, plan, choice, d, scratch)) return -1;
  }
  VITRINE_GPU_CHECK(cudaEventRecord(end.get(), stream()));
  VITRINE_GPU_CHECK(cudaEventSynchronize(end.get()));
  float milliseconds = 0;
  VITRINE_GPU_CHECK(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()));
  return milliseconds / static_cast<float>(runs);
}

struct Timed {
  float milliseconds = 0;
  GemmChoice choice;
};
void sort_by_time(std::vector<Timed>& all) {
  std::stable_sort(all.begin(), all.end(), [](const Timed& a, const Timed& b) {
    return a.milliseconds < b.milliseconds;
  });
}

int runs_in(double milliseconds, const Timed& candidate) {
  const double once = std::max(1e-3, static_cast<double>(candidate.milliseconds));
  return std::max(1, static_cast<int>(milliseconds / once));
}

void time_again(const Gemm& g, Plan& plan, std::vector<Timed>& finalists, void* d, void* scratch) {
  const size_t count = finalists.size();
  std::vector<float> total(count, 0);
  for (int round = 0; round < kFinalRounds; ++round) {
    for (size_t place = 0; place < count; ++place) {
      const size_t i = round % 2 == 0 ? place : count - 1 - place;
      const GemmChoice& choice = finalists[i].choice;
      timed(g, plan, choice, d, scratch, runs_in(kSettleMs, finalists[i]));
      const float time = timed(g, plan, choice, d, scratch, runs_in(kMeasureMs, finalists[i]));
      total[i] += time >= 0 ? time : std::numeric_limits<float>::infinity();
    }
  }
  for (size_t i = 0; i < count; ++i) finalists[i].milliseconds = total[i] / kFinalRounds;
}

// d is written over anyway, unless something is added to it: then the runs write elsewhere.
GemmChoice fastest(
    const Gemm& g, Plan& plan, const std::vector<GemmChoice>& all, double flops, void* scratch) {
  const size_t bytes = static_cast<size_t>(g.m * g.d_stride) * dtype_bytes(g.d_dtype);
  std::optional<Loan> loan;
  if (g.accumulate && !loan.emplace(bytes).data) return all.front();
  void* d = loan ? loan->data : g.d;
  std::vector<Timed> order;
  const bool large = flops >= kFinalFlops;
  if (large) {  // else the first to be timed would have the cool card
    const float once = timed(g, plan, all.front(), d, scratch, 1);
    if (once >= 0) timed(g, plan, all.front(), d, scratch, runs_in(kHeatMs, {once, all.front()}));
  }
  for (const GemmChoice& choice : all) {
    const float time = timed(g, plan, choice, d, scratch, kTimedRuns);
    if (time >= 0) order.push_back({time, choice});
  }
  if (order.empty()) return all.front();
  sort_by_time(order);
  if (large && order.size() > 1) {
    int left[] = {kFinalistsEach, kFinalistsEach};
    std::erase_if(order,
                  [&](const Timed& t) { return left[t.choice.own.tile_columns != 0]-- <= 0; });
    time_again(g, plan, order, d, scratch);
    sort_by_time(order);
  }
  return order.front().choice;
}

bool accepted(const Gemm& g, Plan& plan, const GemmChoice& choice) {
  if (choice.own.tile_columns != 0) {
    const auto own = wgmma_variants(g);
    return std::find(own.begin(), own.end(), choice.own) != own.end();
  }
  cublasLtMatmulHeuristicResult_t result{};
  return cublasLtMatmulAlgoCheck(handle(),
                                 &plan.operation,
                                 &plan.first,
                                 &plan.second,
                                 &plan.out,
                                 &plan.out,
                                 &choice.library,
                                 &result) == CUBLAS_STATUS_SUCCESS &&
         result.workspaceSize <= kGemmScratch;
}

bool capturing() {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  VITRINE_GPU_CHECK(cudaStreamIsCapturing(stream(), &status));
  return status != cudaStreamCaptureStatusNone;
}

void choose(const Gemm& g, const GemmKey& key, Plan& plan, void* scratch) {
  const std::string& gpu = limits().name;
  // Measurements differ from one process to the next, and with them the order of sums.
  const bool measured = !deterministic();
  if (const auto known = measured ? find_gemm_choice(gpu, key) : std::nullopt) {
    if (accepted(g, plan, *known)) {
      plan.choice = *known;
      plan.settled = true;
      return;
    }
    forget_gemm_choice(gpu, key);
  }
  auto all = candidates(g, plan);
  plan.plain = all.empty();
  plan.settled = true;
  if (plan.plain) return;
  plan.choice = all.front();
  const double flops =
      2.0 * static_cast<double>(g.m) * static_cast<double>(g.n) * static_cast<double>(g.k);
  if (!measured || flops < kTimedFlops) return;
  if (capturing()) {
    plan.settled = false;
    not_capturable("a product whose kernel is not chosen yet");
    return;
  }
  for (const WgmmaVariant& own : wgmma_variants(g)) all.push_back({own, {}});
  plan.choice = note_gemm_choice(gpu, key, fastest(g, plan, all, flops, scratch));
}

}  // namespace

void matmul(const Gemm& g, void* scratch) {
  if (g.m == 0 || g.n == 0) return;
  if (g.k == 0) return plain_matmul(g);
  // Per thread: descriptors hold the bias's address, and no lock is taken in the steady state.
  static thread_local std::map<std::tuple<int, bool, GemmKey>, Plan> plans;
  const GemmKey key = key_of(g);
  Plan& plan = plans[{limits().device, deterministic(), key}];
  if (!plan.settled) {
    describe(g, plan);
    choose(g, key, plan, scratch);
  }
  if (plan.plain) return plain_matmul(g);
  point(g, plan);
  if (plan.choice.own.tile_columns != 0) {
    return wgmma_matmul(g, plan.choice.own, g.d, scratch);
  }
  VITRINE_LT_CHECK(run(g, plan, plan.choice.library, g.d, scratch));
}

}  // namespace vitrine::gpu

// Descriptors of cuDNN's backend API.
#include "ops/gpu/cudnn_graph.h"

#include <map>

#include "gpu/runtime.h"

namespace vitrine::gpu {

void check_cudnn(cudnnStatus_t status, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  char message[256] = "";
  cudnnGetLastErrorString(message, sizeof message);
  throw CudnnFailure{std::string(call) + ": " + cudnnGetErrorString(status) + " " + message};
}
#define VITRINE_CUDNN_CHECK(call) check_cudnn((call), #call)

cudnnHandle_t cudnn_handle() {
  // Kept until the process ends: by then the driver may be gone.
  static thread_local auto* handles = new std::map<int, cudnnHandle_t>;
  cudnnHandle_t& handle = (*handles)[limits().device];
  if (!handle) VITRINE_CUDNN_CHECK(cudnnCreate(&handle));
  VITRINE_CUDNN_CHECK(cudnnSetStream(handle, stream()));
  return handle;
}

CudnnDescriptor::CudnnDescriptor(cudnnBackendDescriptorType_t type) {
  VITRINE_CUDNN_CHECK(cudnnBackendCreateDescriptor(type, &handle_));
}

CudnnDescriptor::~CudnnDescriptor() {
  if (handle_) cudnnBackendDestroyDescriptor(handle_);
}

void CudnnDescriptor::set(cudnnBackendAttributeName_t name,
                          cudnnBackendAttributeType_t type,
                          int64_t count,
                          const void* values) {
  VITRINE_CUDNN_CHECK(cudnnBackendSetAttribute(handle_, name, type, count, values));
}

void CudnnDescriptor::finish() { VITRINE_CUDNN_CHECK(cudnnBackendFinalize(handle_)); }

void CudnnPlan::run(const std::vector<std::pair<int64_t, void*>>& operands, void* workspace) const {
  std::vector<int64_t> numbers;
  std::vector<void*> pointers;
  for (const auto& [number, pointer] : operands) {
    numbers.push_back(number);
    pointers.push_back(pointer);
  }
  const int64_t count = static_cast<int64_t>(numbers.size());
  CudnnDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, numbers.data());
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, pointers.data());
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
  pack.finish();
  VITRINE_CUDNN_CHECK(cudnnBackendExecute(cudnn_handle(), plan_.get(), pack.get()));
}

int64_t CudnnGraph::add_tensor(cudnnDataType_t type,
                               const CudnnDims& dims,
                               const CudnnDims& strides,
                               bool is_hidden,
                               bool by_value) {
  const int64_t number = static_cast<int64_t>(tensors_.size()) + 1, alignment = 16;
  CudnnDescriptor made(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  made.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
  made.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims.data());
  made.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides.data());
  made.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &number);
  made.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
  made.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_hidden);
  made.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value);
  made.finish();
  tensors_.push_back(std::move(made));
  return number;
}

int64_t CudnnGraph::tensor(cudnnDataType_t type, const CudnnDims& dims, const CudnnDims& strides) {
  return add_tensor(type, dims, strides, false, false);
}

int64_t CudnnGraph::hidden(cudnnDataType_t type, const CudnnDims& dims) {
  return hidden(type, dims, {dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1});
}

int64_t CudnnGraph::hidden(cudnnDataType_t type, const CudnnDims& dims, const CudnnDims& strides) {
  return add_tensor(type, dims, strides, true, false);
}

int64_t CudnnGraph::scalar() {
  return add_tensor(CUDNN_DATA_FLOAT, {1, 1, 1, 1}, {1, 1, 1, 1}, false, true);
}

namespace {

void set_tensor(CudnnDescriptor& operation,
                cudnnBackendAttributeName_t name,
                const CudnnDescriptor& tensor) {
  const cudnnBackendDescriptor_t handle = tensor.get();
  operation.set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &handle);
}

}  // namespace

void CudnnGraph::matmul(int64_t a, int64_t b, int64_t c) {
  const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  CudnnDescriptor attributes(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  attributes.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
  attributes.finish();
  CudnnDescriptor operation(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  set_tensor(operation, CUDNN_ATTR_OPERATION_MATMUL_ADESC, at(a));
  set_tensor(operation, CUDNN_ATTR_OPERATION_MATMUL_BDESC, at(b));
  set_tensor(operation, CUDNN_ATTR_OPERATION_MATMUL_CDESC, at(c));
  set_tensor(operation, CUDNN_ATTR_OPERATION_MATMUL_DESC, attributes);
  operation.finish();
  attributes_.push_back(std::move(attributes));
  operations_.push_back(std::move(operation));
}

void CudnnGraph::add_pointwise(const Pointwise& p) {
  CudnnDescriptor attributes(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  attributes.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &p.mode);
  attributes.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &p.compute);
  if (p.axis >= 0) attributes.set(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &p.axis);
  attributes.finish();
  CudnnDescriptor operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  set_tensor(operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, attributes);
  set_tensor(operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, at(p.x));
  if (p.b) set_tensor(operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, at(p.b));
  if (p.t) set_tensor(operation, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, at(p.t));
  set_tensor(operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, at(p.y));
  operation.finish();
  attributes_.push_back(std::move(attributes));
  operations_.push_back(std::move(operation));
}

void CudnnGraph::pointwise(cudnnPointwiseMode_t mode, int64_t x, int64_t y) {
  add_pointwise({.mode = mode, .x = x, .y = y});
}

void CudnnGraph::pointwise(cudnnPointwiseMode_t mode, int64_t x, int64_t b, int64_t y) {
  add_pointwise({.mode = mode, .x = x, .b = b, .y = y});
}

void CudnnGraph::index(int64_t x, int64_t axis, int64_t y) {
  add_pointwise({.mode = CUDNN_POINTWISE_GEN_INDEX, .axis = axis, .x = x, .y = y});
}

void CudnnGraph::compare_ge(int64_t a, int64_t c, int64_t t) {
  add_pointwise(
      {.mode = CUDNN_POINTWISE_CMP_GE, .compute = CUDNN_DATA_BOOLEAN, .x = a, .b = c, .y = t});
}

void CudnnGraph::select(int64_t x, int64_t b, int64_t t, int64_t y) {
  add_pointwise({.mode = CUDNN_POINTWISE_BINARY_SELECT, .x = x, .b = b, .t = t, .y = y});
}

void CudnnGraph::reduce(cudnnReduceTensorOp_t mode, int64_t x, int64_t y) {
  const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  CudnnDescriptor attributes(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  attributes.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &mode);
  attributes.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
  attributes.finish();
  CudnnDescriptor operation(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  set_tensor(operation, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, at(x));
  set_tensor(operation, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, at(y));
  set_tensor(operation, CUDNN_ATTR_OPERATION_REDUCTION_DESC, attributes);
  operation.finish();
  attributes_.push_back(std::move(attributes));
  operations_.push_back(std::move(operation));
}

void CudnnGraph::reshape(int64_t x, int64_t y) {
  CudnnDescriptor operation(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  set_tensor(operation, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, at(x));
  set_tensor(operation, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, at(y));
  operation.finish();
  operations_.push_back(std::move(operation));
}

bool CudnnGraph::try_engines(cudnnBackendHeurMode_t mode,
                             const CudnnDescriptor& graph,
                             CudnnPlan& plan) {
  CudnnDescriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  set_tensor(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  heuristics.finish();
  int64_t count = 0;
  VITRINE_CUDNN_CHECK(cudnnBackendGetAttribute(heuristics.get(),
                                               CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                               CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                               0,
                                               &count,
                                               nullptr));
  std::vector<CudnnDescriptor> configurations;
  std::vector<cudnnBackendDescriptor_t> handles;
  for (int64_t i = 0; i < count; ++i) {
    configurations.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    handles.push_back(configurations.back().get());
  }
  VITRINE_CUDNN_CHECK(cudnnBackendGetAttribute(heuristics.get(),
                                               CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                               CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                               count,
                                               &count,
                                               handles.data()));
  cudnnHandle_t handle = cudnn_handle();
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    try {
      CudnnDescriptor made(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
      made.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
      set_tensor(made, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configurations[i]);
      made.finish();
      int64_t one = 0;
      VITRINE_CUDNN_CHECK(cudnnBackendGetAttribute(made.get(),
                                                   CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                                   CUDNN_TYPE_INT64,
                                                   1,
                                                   &one,
                                                   &plan.workspace_bytes_));
      plan.plan_ = std::move(made);
      return true;
    } catch (const CudnnFailure& failure) {
      last_failure_ = failure.text;
    }
  }
  return false;
}

CudnnPlan CudnnGraph::plan() {
  cudnnHandle_t handle = cudnn_handle();
  std::vector<cudnnBackendDescriptor_t> handles;
  for (const CudnnDescriptor& operation : operations_) handles.push_back(operation.get());
  CudnnDescriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS,
            CUDNN_TYPE_BACKEND_DESCRIPTOR,
            static_cast<int64_t>(handles.size()),
            handles.data());
  graph.finish();
  CudnnPlan made;
  if (try_engines(CUDNN_HEUR_MODE_A, graph, made)) return made;
  if (try_engines(CUDNN_HEUR_MODE_FALLBACK, graph, made)) return made;
  throw CudnnFailure{"no engine takes the graph: " + last_failure_};
}

}  // namespace vitrine::gpu

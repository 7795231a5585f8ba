// Owned tensors and the forward and backward of one case.
#include "support/op_runner.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/philox.h"

namespace vitrine::test {
namespace {

void* aligned(std::vector<unsigned char>& bytes) {
  const auto address = reinterpret_cast<uintptr_t>(bytes.data());
  return bytes.data() + ((64 - address % 64) % 64);
}

// Host tensors as a device sees them for one call, in place on the host itself.
class Mirror {
 public:
  Mirror(Device& device, size_t offset) : device_(device), offset_(offset) {}
  ~Mirror() {
    for (const Copy& copy : copies_) device_.release(copy.block, copy.bytes + kMostOffset);
  }
  TensorView view(Tensor& tensor) {
    TensorView view = tensor.view();
    if (device_.is_host() || !view) return view;
    const size_t bytes = std::max<size_t>(1, view.bytes());
    auto* block = static_cast<char*>(device_.allocate(bytes + kMostOffset));
    copies_.push_back({view.data, block, block + offset_, bytes});
    device_.upload(copies_.back().there, view.data, view.bytes());
    view.data = copies_.back().there;
    return view;
  }
  void fetch() {
    device_.synchronize();
    for (const Copy& copy : copies_) device_.download(copy.here, copy.there, copy.bytes);
  }

 private:
  static constexpr size_t kMostOffset = 64;

  struct Copy {
    void *here, *block, *there;
    size_t bytes;
  };
  Device& device_;
  size_t offset_;
  std::vector<Copy> copies_;
};

}  // namespace

Tensor::Tensor(const TensorType& type)
    : type_(type), bytes_(static_cast<size_t>(type.bytes()) + 64, 0xff), data_(aligned(bytes_)) {}

Tensor::Tensor(const Tensor& other) { *this = other; }

Tensor& Tensor::operator=(const Tensor& other) {
  if (this == &other) return *this;
  type_ = other.type_;
  bytes_.assign(other.bytes_.size(), 0xff);
  data_ = bytes_.empty() ? nullptr : aligned(bytes_);
  if (data_) std::memcpy(data_, other.data_, static_cast<size_t>(type_.bytes()));
  return *this;
}

std::vector<double> Tensor::values() const {
  std::vector<double> all(static_cast<size_t>(data_ ? type_.shape.elements() : 0));
  convert(DType::kF64, all.data(), type_.dtype, data_, static_cast<int64_t>(all.size()));
  return all;
}

void Tensor::set(const std::vector<double>& values) {
  for (size_t i = 0; i < values.size(); ++i) set(static_cast<int64_t>(i), values[i]);
}

void Tensor::set(int64_t i, double value) {
  if (type_.dtype == DType::kI32) {
    static_cast<int32_t*>(data_)[i] = static_cast<int32_t>(value);
  } else {
    char* place = static_cast<char*>(data_) + static_cast<size_t>(i) * dtype_bytes(type_.dtype);
    convert(type_.dtype, place, DType::kF64, &value, 1);
  }
}

std::vector<double> random_values(int64_t count, uint64_t seed, double scale) {
  const Philox random(seed, stream_of("op tests"));
  std::vector<double> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = scale * random.normal(i);
  return values;
}

std::vector<Tensor> make_inputs(const OpCase& c, DType dtype, uint64_t seed) {
  std::vector<Tensor> in;
  const auto types = c.types(dtype);
  for (size_t i = 0; i < types.size(); ++i) {
    Tensor tensor(types[i]);
    const int64_t count = types[i].shape.elements();
    if (c.is_ids(i)) {
      const Philox random(seed, stream_of("ids"));
      for (int64_t j = 0; j < count; ++j) {
        const bool ignored = c.ignored_rows && j % 3 == 1;
        const auto id = random.below(static_cast<uint64_t>(c.vocabulary), static_cast<uint64_t>(j));
        tensor.set(j, ignored ? -100 : static_cast<double>(id));
      }
    } else {
      tensor.set(random_values(count, seed + 17 * (i + 1)));
    }
    in.push_back(tensor);
  }
  return in;
}

ForwardResult run_forward(const Backend& backend,
                          const OpCase& c,
                          std::vector<Tensor>& in,
                          Device& device,
                          size_t offset_bytes) {
  Mirror mirror(device, offset_bytes);
  std::vector<TensorType> types;
  std::vector<TensorView> in_views, out_views, saved_views;
  for (Tensor& tensor : in) {
    types.push_back(tensor.type());
    in_views.push_back(mirror.view(tensor));
  }
  const OpSignature signature = find_op(c.op).infer(c.attrs, types);
  ForwardResult result;
  for (const TensorType& type : signature.out) result.out.emplace_back(type);
  for (const TensorType& type : signature.saved) result.saved.emplace_back(type);
  for (Tensor& tensor : result.out) out_views.push_back(mirror.view(tensor));
  for (Tensor& tensor : result.saved) saved_views.push_back(mirror.view(tensor));
  Tensor workspace({Shape{signature.forward_workspace}, DType::kU8});
  backend.kernels(c.op).forward(
      {&c.attrs, in_views, out_views, saved_views, mirror.view(workspace).data});
  mirror.fetch();
  return result;
}

std::vector<Tensor> run_backward(const Backend& backend,
                                 const OpCase& c,
                                 std::vector<Tensor>& in,
                                 ForwardResult forward,
                                 std::vector<Tensor>& dout,
                                 const BackwardOptions& options,
                                 Device& device) {
  Mirror mirror(device, options.offset_bytes);
  const OpDef& op = find_op(c.op);
  std::vector<TensorType> types;
  std::vector<TensorView> in_views, out_views, saved_views, dout_views;
  std::vector<GradView> din_views;
  std::vector<Tensor> din(in.size());
  for (size_t i = 0; i < in.size(); ++i) {
    types.push_back(in[i].type());
    in_views.push_back(op.backward_reads_in >> i & 1u ? mirror.view(in[i]) : TensorView{});
    din_views.emplace_back();
    if (!(op.differentiable & options.din_mask & (1u << i))) continue;
    TensorType type = in[i].type();
    if (options.f32_parameters) type.dtype = DType::kF32;
    din[i] = Tensor(type);
    if (options.accumulate) din[i].set(options.initial[i]);
  }
  for (size_t i = 0; i < in.size(); ++i) {
    if (din[i].type().shape.rank() > 0) din_views[i] = {mirror.view(din[i]), options.accumulate};
  }
  for (size_t i = 0; i < forward.out.size(); ++i) {
    out_views.push_back(op.backward_reads_out >> i & 1u ? mirror.view(forward.out[i])
                                                        : TensorView{});
    dout_views.push_back(options.dout_mask >> i & 1u ? mirror.view(dout[i]) : TensorView{});
  }
  for (Tensor& tensor : forward.saved) saved_views.push_back(mirror.view(tensor));
  const OpSignature signature = op.infer(c.attrs, types);
  Tensor workspace({Shape{signature.backward_workspace}, DType::kU8});
  backend.kernels(c.op).backward(
      {&c.attrs, in_views, out_views, saved_views, mirror.view(workspace).data},
      dout_views,
      din_views);
  mirror.fetch();
  return din;
}

double relative_error(const std::vector<double>& got,
                      const std::vector<double>& expected,
                      double floor) {
  if (got.size() != expected.size()) return INFINITY;
  double scale = floor, error = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (!std::isfinite(got[i])) return INFINITY;
    scale = std::max(scale, std::abs(expected[i]));
    error = std::max(error, std::abs(got[i] - expected[i]));
  }
  return error / scale;
}

}  // namespace vitrine::test

// Runs one operation case on a backend, handing each direction only what its contract lets it read.
#pragma once

#include <cstdint>
#include <vector>

#include "core/device.h"
#include "ops/op.h"
#include "support/op_cases.h"

namespace vitrine::test {

// An owned tensor, 64-byte aligned, filled with 0xff bytes (NaN) so that what is not written shows.
class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(const TensorType& type);
  TensorView view() { return {data_, type_.shape, type_.dtype}; }
  const TensorType& type() const { return type_; }
  std::vector<double> values() const;
  void set(const std::vector<double>& values);
  void set(int64_t i, double value);

 private:
  TensorType type_;
  std::vector<unsigned char> bytes_;
  void* data_ = nullptr;

 public:
  Tensor(const Tensor& other);
  Tensor& operator=(const Tensor& other);
};

std::vector<double> random_values(int64_t count, uint64_t seed, double scale = 1);
// Inputs of a case: normal numbers rounded to dtype, ids below the vocabulary.
std::vector<Tensor> make_inputs(const OpCase& c, DType dtype, uint64_t seed);

struct ForwardResult {
  std::vector<Tensor> out, saved;
};
// On a device other than the host, operands are copied there and results back; the workspace and
// what is not yet written is filled with NaN there too. `offset_bytes`, at most 64: how far
// operands there lie from an aligned address.
ForwardResult run_forward(const Backend& backend,
                          const OpCase& c,
                          std::vector<Tensor>& in,
                          Device& device = host_device(),
                          size_t offset_bytes = 0);

struct BackwardOptions {
  bool accumulate = false;
  uint32_t dout_mask = ~0u;                  // outputs whose gradient is given
  uint32_t din_mask = ~0u;                   // gradients wanted, of those that can be
  bool f32_parameters = false;               // gradients in f32 whatever the inputs' dtype
  std::vector<std::vector<double>> initial;  // what accumulated gradients start from
  size_t offset_bytes = 0;                   // as for run_forward
};
// One tensor for each input; empty where there is no gradient.
std::vector<Tensor> run_backward(const Backend& backend,
                                 const OpCase& c,
                                 std::vector<Tensor>& in,
                                 ForwardResult forward,
                                 std::vector<Tensor>& dout,
                                 const BackwardOptions& options = {},
                                 Device& device = host_device());

// Largest |got - expected| over the largest |expected| (at least `floor`); infinite where got is
// not finite.
double relative_error(const std::vector<double>& got,
                      const std::vector<double>& expected,
                      double floor = 1e-3);

}  // namespace vitrine::test

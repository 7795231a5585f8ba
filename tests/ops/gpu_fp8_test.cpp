// The GPU's 8-bit copies of tensors, bit for bit those of the CPU's rounding.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "gpu/gpu.h"
#include "ops/gpu/fp8.h"
#include "support/op_runner.h"

namespace vitrine::test {
namespace {

Device& gpu() {
  static auto* device = make_gpu_device(0).release();
  device->enter_lane(0);
  return *device;
}

float decoded(uint8_t code, Fp8 format) {
  const int mantissa = format == Fp8::kE5M2 ? 2 : 3, bias = format == Fp8::kE5M2 ? 15 : 7;
  const int exponent = (code & 0x7f) >> mantissa, fraction = code & ((1 << mantissa) - 1);
  const int whole = exponent == 0 ? fraction : fraction + (1 << mantissa);
  const float magnitude =
      std::ldexp(static_cast<float>(whole), std::max(exponent, 1) - bias - mantissa);
  return code & 0x80 ? -magnitude : magnitude;
}

// `shift` elements between an aligned address and the tensor.
void expect_cpu_bits(int64_t rows, int64_t columns, Fp8 format, double size, int64_t shift) {
  SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(columns) + " by " +
               std::to_string(size) + " at " + std::to_string(shift));
  const int64_t count = rows * columns;
  const auto elements = static_cast<size_t>(count);
  std::vector<float> values(elements);
  const auto drawn = random_values(count, 7, size);
  std::vector<bf16> narrow(elements);
  for (size_t i = 0; i < elements; ++i) {
    narrow[i] = to_bf16(static_cast<float>(drawn[i]));
    values[i] = to_float(narrow[i]);
  }
  const float scale = fp8_scale(largest_magnitude(values.data(), count), format);
  const size_t bytes = (elements + 64) * sizeof(bf16);
  auto* from = static_cast<char*>(gpu().allocate(bytes));
  auto* both = static_cast<char*>(gpu().allocate(2 * elements));
  auto* at = static_cast<gpu::Fp8Scale*>(gpu().allocate(256));
  gpu().upload(from + shift * 2, narrow.data(), elements * sizeof(bf16));
  for (int wanted = 1; wanted < 4; ++wanted) {
    gpu::clear_fp8_scales(at, 1);
    gpu::to_fp8(from + shift * 2,
                rows,
                columns,
                format,
                nullptr,
                at,
                {wanted & 1 ? both : nullptr, wanted & 2 ? both + elements : nullptr});
    std::vector<uint8_t> got(2 * elements);
    gpu::Fp8Scale found{};
    gpu().download(got.data(), both, got.size());
    gpu().download(&found, at, sizeof found);
    EXPECT_EQ(found.inverse, 1 / scale);
    int64_t wrong = 0;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        const float expected =
            round_to_fp8(values[static_cast<size_t>(r * columns + c)] * scale, format);
        const uint8_t straight = got[static_cast<size_t>(r * columns + c)];
        const uint8_t turned = got[static_cast<size_t>(count + c * rows + r)];
        if (wanted & 1) wrong += decoded(straight, format) != expected;
        if (wanted & 2) wrong += decoded(turned, format) != expected;
      }
    }
    EXPECT_EQ(wrong, 0) << "copies " << wanted;
  }
  gpu().release(from, bytes);
  gpu().release(both, 2 * elements);
  gpu().release(at, 256);
}

TEST(GpuFp8, CopiesAreThoseOfTheCpu) {
  const std::string why = why_no_gpu();
  if (!why.empty()) GTEST_SKIP() << why;
  for (const Fp8 format : {Fp8::kE4M3, Fp8::kE5M2}) {
    for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{16, 16},
                                        {128, 64},
                                        {144, 80},
                                        {16, 4112},
                                        {2064, 16},
                                        {1040, 3584}}) {
      expect_cpu_bits(rows, columns, format, 1, 0);
    }
    expect_cpu_bits(144, 80, format, 1e-30, 0);
    expect_cpu_bits(144, 80, format, 1e30, 0);
    expect_cpu_bits(144, 80, format, 0, 0);
    expect_cpu_bits(144, 80, format, 1, 3);  // not at 16 bytes
  }
}

// bf16 on the device; `data` is freed with it.
struct OnDevice {
  explicit OnDevice(int64_t count)
      : count(count),
        bytes(static_cast<size_t>(count) * sizeof(bf16)),
        data(gpu().allocate(bytes)) {}
  ~OnDevice() { gpu().release(data, bytes); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  std::vector<float> values() const {
    std::vector<bf16> bits(static_cast<size_t>(count));
    gpu().download(bits.data(), data, bytes);
    std::vector<float> wide;
    for (const bf16 x : bits) wide.push_back(to_float(x));
    return wide;
  }
  int64_t count;
  size_t bytes;
  void* data;
};

// What was written last has its largest magnitude noted, until something else is issued.
void expect_noted(const OnDevice& written) {
  const uint32_t* noted = gpu::noted_amax(written.data, written.count);
  ASSERT_NE(noted, nullptr);
  EXPECT_EQ(gpu::noted_amax(written.data, written.count - 16), nullptr);
  EXPECT_EQ(gpu::noted_amax(noted, written.count), nullptr);
  uint32_t bits = 0;
  gpu().download(&bits, noted, sizeof bits);
  EXPECT_EQ(gpu::noted_amax(written.data, written.count), nullptr) << "something was issued since";
  EXPECT_EQ(std::bit_cast<float>(bits << 16),
            largest_magnitude(written.values().data(), written.count));
}

TEST(GpuFp8, SwigluNotesTheLargestMagnitudeForTheNextOperation) {
  const std::string why = why_no_gpu();
  if (!why.empty()) GTEST_SKIP() << why;
  const OpKernels& swiglu = gpu_backend().kernels("swiglu");
  const Attrs attrs{{"fp8", 1}};
  for (const auto& [rows, width] :
       {std::pair<int64_t, int64_t>{16, 16}, {33, 24}, {300, 7}, {2048, 1040}}) {
    SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(width));
    const OnDevice x(2 * rows * width), y(rows * width), dx(2 * rows * width);
    std::vector<bf16> drawn;
    for (const double value : random_values(x.count, 5, 3)) {
      drawn.push_back(to_bf16(static_cast<float>(value)));
    }
    gpu().upload(x.data, drawn.data(), x.bytes);
    const TensorView in{x.data, Shape{rows, 2 * width}, DType::kBF16};
    const TensorView out{y.data, Shape{rows, width}, DType::kBF16};
    GradView gradient{{dx.data, in.shape, DType::kBF16}, false};
    OpCall call;
    call.attrs = &attrs;
    call.in = {&in, 1};
    call.out = {&out, 1};
    swiglu.forward(call);
    expect_noted(y);
    swiglu.backward(call, {&out, 1}, {&gradient, 1});
    expect_noted(dx);
    gradient.accumulate = true;  // then the sum's largest is not known
    swiglu.backward(call, {&out, 1}, {&gradient, 1});
    EXPECT_EQ(gpu::noted_amax(dx.data, dx.count), nullptr);
  }
}

}  // namespace
}  // namespace vitrine::test

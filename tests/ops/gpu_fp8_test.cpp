// The GPU's 8-bit copies of tensors, bit for bit those of the CPU's rounding.
#include <gtest/gtest.h>

#include <algorithm>
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

}  // namespace
}  // namespace vitrine::test

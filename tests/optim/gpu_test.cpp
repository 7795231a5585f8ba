// The GPU's sums and update of a step against the host's.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <span>

#include "core/error.h"
#include "optim/step_math.h"
#include "optim/step_values.h"
#include "quick_update_check.h"
#include "support/gpu_fixture.h"

namespace vitrine::test {
namespace {

// Bytes on the device; `shift` bytes past an aligned address.
class OnGpu {
 public:
  OnGpu(const void* host, size_t bytes, size_t shift = 0)
      : bytes_(bytes), shift_(shift), block_(gpu().allocate(bytes + shift)) {
    gpu().upload(data(), host, bytes);
  }
  explicit OnGpu(const std::vector<float>& values, size_t shift = 0)
      : OnGpu(values.data(), values.size() * 4, shift) {}
  ~OnGpu() { gpu().release(block_, bytes_ + shift_); }
  OnGpu(const OnGpu&) = delete;
  OnGpu& operator=(const OnGpu&) = delete;
  void* data() const { return static_cast<std::byte*>(block_) + shift_; }
  float* floats() const { return static_cast<float*>(data()); }
  template <typename T>
  std::vector<T> values() const {
    std::vector<T> host(bytes_ / sizeof(T));
    gpu().download(host.data(), data(), bytes_);
    return host;
  }

 private:
  size_t bytes_, shift_;
  void* block_;
};

std::vector<std::byte> narrowed(const std::vector<float>& values, DType dtype) {
  std::vector<std::byte> bytes(values.size() * dtype_bytes(dtype));
  convert(dtype, bytes.data(), DType::kF32, values.data(), static_cast<int64_t>(values.size()));
  return bytes;
}

class GpuStep : public GpuFixture {};

struct UpdateCase {
  DType gradients, parameters;
  size_t shift;  // bytes past an aligned address, of every array alike in elements
  std::vector<UpdateRange> ranges;
};

// Both sides start from the same arrays; every bit of every array must be equal afterwards.
void expect_equal_updates(const UpdateCase& c, int64_t count) {
  const OptimizerConfig config;
  const auto g = narrowed(spread_values(count, 3, 100), c.gradients);
  auto master = spread_values(count, 4), m = spread_values(count, 5), v = spread_values(count, 6);
  for (float& x : v) x = std::abs(x);
  std::vector<std::byte> parameters(master.size() * dtype_bytes(c.parameters), std::byte{7});
  const bool apart = c.parameters != DType::kF32;
  const OnGpu g_gpu(g.data(), g.size(), c.shift * dtype_bytes(c.gradients));
  const OnGpu master_gpu(master, 4 * c.shift), m_gpu(m, 4 * c.shift), v_gpu(v, 4 * c.shift);
  const OnGpu parameters_gpu(
      parameters.data(), parameters.size(), c.shift * dtype_bytes(c.parameters));
  const auto update = [&](StepMath& math, const UpdateArrays& arrays) {
    math.begin();
    math.add_squares(arrays.gradients, c.gradients, 0, count);
    math.combine(1, {.parts = 1, .loss_scale = 4, .clip = 0});
    math.update(config, 1e-3, 7, c.ranges, arrays);
  };
  const auto host = make_host_step_math(), device = make_gpu_step_math();
  update(*host,
         {master.data(),
          m.data(),
          v.data(),
          g.data(),
          c.gradients,
          apart ? static_cast<void*>(parameters.data()) : master.data(),
          c.parameters});
  update(*device,
         {master_gpu.floats(),
          m_gpu.floats(),
          v_gpu.floats(),
          g_gpu.data(),
          c.gradients,
          apart ? parameters_gpu.data() : master_gpu.data(),
          c.parameters});
  EXPECT_EQ(master_gpu.values<float>(), master);
  EXPECT_EQ(m_gpu.values<float>(), m);
  EXPECT_EQ(v_gpu.values<float>(), v);
  EXPECT_EQ(parameters_gpu.values<std::byte>(), parameters);
}

TEST_F(GpuStep, UpdatesWithTheBitsOfTheHost) {
  const std::vector<UpdateRange> whole = {{0, 10007, true}};
  const std::vector<UpdateRange> cut = {
      {3, 50, true}, {50, 51, false}, {51, 51, true}, {64, 9000, false}, {9001, 10007, true}};
  for (const DType gradients : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const DType parameters : {DType::kF32, DType::kBF16, DType::kF16}) {
      for (const size_t shift : {size_t{0}, size_t{1}, size_t{3}}) {
        SCOPED_TRACE(std::string(dtype_name(gradients)) + " " + dtype_name(parameters) + " " +
                     std::to_string(shift));
        expect_equal_updates({gradients, parameters, shift, whole}, 10007);
        expect_equal_updates({gradients, parameters, shift, cut}, 10007);
      }
    }
  }
}

// States in bf16 where said so; roundings draw from the same bits on both sides.
struct NarrowCase {
  DType gradients, masters, moments;
  size_t shift;  // elements past an aligned address
  std::vector<UpdateRange> ranges;
  OptimizerConfig config = {};
  int64_t step = 7;
};

struct Held {
  std::vector<std::byte> g, master, m, v;
};

void expect_equal_narrow_updates(const NarrowCase& c, const Held& start) {
  auto [g, master, m, v] = start;
  std::vector<std::byte> parameters(g.size() / dtype_bytes(c.gradients) * 2, std::byte{7});
  const auto on_gpu = [&](const std::vector<std::byte>& bytes, DType dtype) {
    return std::make_unique<OnGpu>(bytes.data(), bytes.size(), c.shift * dtype_bytes(dtype));
  };
  const auto g_gpu = on_gpu(g, c.gradients), master_gpu = on_gpu(master, c.masters),
             m_gpu = on_gpu(m, c.moments), v_gpu = on_gpu(v, c.moments),
             parameters_gpu = on_gpu(parameters, DType::kBF16);
  const bool apart = c.masters == DType::kF32;
  const auto update = [&](StepMath& math, UpdateArrays arrays) {
    arrays.gradient_dtype = c.gradients;
    arrays.parameter_dtype = DType::kBF16;
    arrays.master_dtype = c.masters;
    arrays.moment_dtype = c.moments;
    arrays.seed = 42;
    math.begin();
    math.combine(1, {.parts = 1, .loss_scale = 4, .clip = 0});
    math.update(c.config, 1e-3, c.step, c.ranges, arrays);
  };
  const auto host = make_host_step_math(), device = make_gpu_step_math();
  update(*host,
         {.master = master.data(),
          .exp_avg = m.data(),
          .exp_avg_sq = v.data(),
          .gradients = g.data(),
          .parameters = apart ? parameters.data() : master.data()});
  update(*device,
         {.master = master_gpu->data(),
          .exp_avg = m_gpu->data(),
          .exp_avg_sq = v_gpu->data(),
          .gradients = g_gpu->data(),
          .parameters = apart ? parameters_gpu->data() : master_gpu->data()});
  EXPECT_EQ(master_gpu->values<std::byte>(), master);
  EXPECT_EQ(m_gpu->values<std::byte>(), m);
  EXPECT_EQ(v_gpu->values<std::byte>(), v);
  EXPECT_EQ(parameters_gpu->values<std::byte>(), parameters);
}

void expect_equal_narrow_updates(const NarrowCase& c, int64_t count) {
  auto squares = spread_values(count, 6);
  for (float& x : squares) x = std::abs(x);
  expect_equal_narrow_updates(c,
                              {narrowed(spread_values(count, 3, 100), c.gradients),
                               narrowed(spread_values(count, 4), c.masters),
                               narrowed(spread_values(count, 5), c.moments),
                               narrowed(squares, c.moments)});
}

TEST_F(GpuStep, RoundsStatesStochasticallyWithTheBitsOfTheHost) {
  const uint64_t stream = stream_of("weight");
  const std::vector<UpdateRange> whole = {{0, 10007, true, stream, 0}};
  // The parameter's elements 2^33 and on; ranges whose groups of random bits lie across the
  // arrays'.
  const std::vector<UpdateRange> cut = {{3, 50, true, stream, 3},
                                        {50, 51, false, stream + 1, 0},
                                        {64, 5000, false, stream + 2, (int64_t{1} << 33) + 128},
                                        {5000, 9000, true, stream + 3, 4},
                                        {9001, 10007, true, stream + 4, 7}};
  constexpr DType kF32 = DType::kF32, kBF16 = DType::kBF16;
  for (const DType gradients : {kF32, kBF16}) {
    for (const auto& [masters, moments] :
         {std::pair(kBF16, kBF16), std::pair(kBF16, kF32), std::pair(kF32, kBF16)}) {
      for (const size_t shift : {size_t{0}, size_t{1}, size_t{4}}) {
        SCOPED_TRACE(std::string(dtype_name(gradients)) + " " + dtype_name(masters) + " " +
                     dtype_name(moments) + " " + std::to_string(shift));
        expect_equal_narrow_updates({gradients, masters, moments, shift, whole}, 10007);
        expect_equal_narrow_updates({gradients, masters, moments, shift, cut}, 10007);
      }
    }
  }
}

TEST_F(GpuStep, QuickRootsAndQuotientsRoundRight) {
  const QuickMisses misses = count_quick_misses();
  EXPECT_EQ(misses.roots, 0);
  EXPECT_EQ(misses.quotients, 0);
  EXPECT_EQ(misses.corrected, 0);
}

// Over the magnitudes of real states.
TEST_F(GpuStep, UpdatesMillionsOfNarrowStatesWithTheBitsOfTheHost) {
  constexpr int64_t kCount = 6'000'000;
  const Philox random(9, stream_of("magnitudes"));
  std::vector<float> g(kCount), master(kCount), m(kCount), v(kCount);
  for (int64_t i = 0; i < kCount; ++i) {
    const auto bits = random.block(static_cast<uint64_t>(i));
    const auto value = [&](int which, int least, int powers) {
      const float mantissa = std::bit_cast<float>(0x3f800000u | bits[which] >> 9);
      return std::ldexp(mantissa, least + static_cast<int>(bits[which] % powers));
    };
    const float sign = bits[3] & 1 ? -1.0f : 1.0f;
    g[i] = sign * value(0, -30, 32);
    m[i] = value(1, -30, 32) * (bits[3] & 2 ? -1.0f : 1.0f);
    v[i] = value(2, -60, 66);
    master[i] = sign * value(3, -8, 12);
  }
  const std::vector<UpdateRange> whole = {{0, kCount, true, stream_of("weight"), 0}};
  for (const DType gradients : {DType::kF32, DType::kBF16}) {
    expect_equal_narrow_updates({gradients, DType::kBF16, DType::kBF16, 0, whole},
                                {narrowed(g, gradients),
                                 narrowed(master, DType::kBF16),
                                 narrowed(m, DType::kBF16),
                                 narrowed(v, DType::kBF16)});
  }
}

// Zeros of both signs, subnormal, huge and infinite values, NaN, in every state: any bits at all,
// and groups that are zeros but for one element.
TEST_F(GpuStep, UpdatesAnyBitsOfStatesWithTheBitsOfTheHost) {
  constexpr int64_t kCount = 1 << 20;
  const Philox random(10, stream_of("any bits"));
  std::vector<uint16_t> g(kCount), master(kCount), m(kCount), v(kCount);
  for (int64_t i = 0; i < kCount; ++i) {
    const auto bits = random.block(static_cast<uint64_t>(i));
    const auto kind = i / 8 % 4;
    const bool zero = kind == 1 || (kind == 2 && i % 8 != 3);
    const auto any = [&](int which) {
      const auto out = static_cast<uint16_t>(bits[which]);
      return zero ? static_cast<uint16_t>(out & 0x8000u) : out;
    };
    master[i] = static_cast<uint16_t>(bits[0]);
    g[i] = any(1);
    m[i] = any(2);
    v[i] = any(3);
  }
  const auto held = [](const std::vector<uint16_t>& values) {
    const auto bytes = std::as_bytes(std::span(values));
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  };
  const std::vector<UpdateRange> whole = {{0, kCount, true, stream_of("weight"), 0}};
  NarrowCase c{DType::kBF16, DType::kBF16, DType::kBF16, 0, whole};
  // The quick way's ends, and past them.
  for (const double eps : {1e-8, 0.0, 0x1p-60, 0x1p-61, 0x1p16, 1e6}) {
    SCOPED_TRACE(eps);
    c.config.eps = eps;
    expect_equal_narrow_updates(c, {held(g), held(master), held(m), held(v)});
  }
  c.config = {};
  c.step = 1;
  c.config.beta2 = 1 - 1e-9;
  expect_equal_narrow_updates(c, {held(g), held(master), held(m), held(v)});
}

TEST_F(GpuStep, UpdatesMoreRangesThanOneLaunchHolds) {
  std::vector<UpdateRange> ranges;
  for (int64_t i = 0; i < 1000; ++i) ranges.push_back({i * 10, i * 10 + i % 10, i % 3 == 0});
  expect_equal_updates({DType::kF32, DType::kBF16, 0, ranges}, 10007);
}

// The norm of `values` added in pieces; cuts are multiples of kNormChunk.
double norm_in_pieces(StepMath& math,
                      const std::byte* data,
                      DType dtype,
                      const std::vector<int64_t>& cuts) {
  math.begin();
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    math.add_squares(
        data + static_cast<size_t>(cuts[i]) * dtype_bytes(dtype), dtype, cuts[i], cuts[i + 1]);
  }
  math.combine(1, {.parts = 1, .loss_scale = 2, .clip = 1});
  return math.sums().gradient_norm;
}

TEST_F(GpuStep, FindsTheNormOfTheHostHoweverTheGradientIsCut) {
  const int64_t count = 1'000'003;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const auto g = narrowed(spread_values(count, 9, 3), dtype);
    for (const size_t shift : {size_t{0}, dtype_bytes(dtype)}) {
      const OnGpu g_gpu(g.data(), g.size(), shift);
      const auto* data = static_cast<const std::byte*>(g_gpu.data());
      const auto host = make_host_step_math(), device = make_gpu_step_math();
      const double expected = norm_in_pieces(*host, g.data(), dtype, {0, count});
      const double whole = norm_in_pieces(*device, data, dtype, {0, count});
      EXPECT_NEAR(whole / expected, 1, 1e-12) << dtype_name(dtype);
      EXPECT_EQ(norm_in_pieces(*device, data, dtype, {0, 64, 64 * 77, 640000, count}), whole);
      EXPECT_EQ(norm_in_pieces(*device, data, dtype, {0, 64 * 8, 64 * 9999, count}), whole);
    }
  }
}

// Terms are added in order in fp32 and rounded once; the norm has the bits of one that is taken of
// what was written, and is the host's, whole or in pieces, aligned or not, also where the sum
// replaces a term.
TEST_F(GpuStep, SumsTermsAndTakesTheirSquares) {
  const int64_t count = 300'007;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const size_t ranks : {1u, 2u, 3u, 5u}) {
      SCOPED_TRACE(std::string(dtype_name(dtype)) + ", terms " + std::to_string(ranks));
      const size_t shift = ranks == 3 ? dtype_bytes(dtype) : 0;
      std::vector<std::unique_ptr<OnGpu>> on_gpu;
      std::vector<std::vector<float>> values;
      for (size_t r = 0; r < ranks; ++r) {
        const auto bytes = narrowed(spread_values(count, 20 + r, 3), dtype);
        values.emplace_back(count);
        convert(DType::kF32, values.back().data(), dtype, bytes.data(), count);
        on_gpu.push_back(std::make_unique<OnGpu>(bytes.data(), bytes.size(), shift));
      }
      std::vector<float> sums(count);
      for (const auto& term : values) {
        for (size_t i = 0; i < sums.size(); ++i) sums[i] += term[i];
      }
      const auto expected = narrowed(sums, dtype);
      const auto host = make_host_step_math(), device = make_gpu_step_math();
      const double norm = norm_in_pieces(*host, expected.data(), dtype, {0, count});
      const std::vector<std::byte> nothing(expected.size(), std::byte{0x55});
      const OnGpu apart(nothing.data(), nothing.size(), shift);
      for (const bool in_place : {false, true}) {
        const OnGpu& out = in_place ? *on_gpu.back() : apart;
        device->begin();
        const std::vector<int64_t> cuts = {0, 64, 64 * 77, 64 * 2000, count};
        for (size_t i = 0; i + 1 < cuts.size(); ++i) {
          const auto at = [&](void* data) {
            return static_cast<std::byte*>(data) +
                   static_cast<size_t>(cuts[i]) * dtype_bytes(dtype);
          };
          std::vector<const void*> terms;
          for (const auto& term : on_gpu) terms.push_back(at(term->data()));
          device->sum_adding_squares(at(out.data()), terms, dtype, cuts[i], cuts[i + 1]);
        }
        device->combine(1, {.parts = 1, .loss_scale = 2, .clip = 1});
        const double with_the_sum = device->sums().gradient_norm;
        EXPECT_NEAR(with_the_sum / norm, 1, 1e-12);
        EXPECT_EQ(out.values<std::byte>(), expected);
        const auto* summed = static_cast<const std::byte*>(out.data());
        EXPECT_EQ(with_the_sum, norm_in_pieces(*device, summed, dtype, {0, count}));
      }
    }
  }
}

// So many that each warp takes several spans of eight chunks, and a rest.
TEST_F(GpuStep, TakesSquaresOfLargeGradientsOnceEach) {
  const int64_t count = 14'000'077;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const auto g = narrowed(spread_values(count, 31, 3), dtype);
    const std::vector<std::byte> zeros(g.size());
    const OnGpu on_gpu(g.data(), g.size()), nothing(zeros.data(), zeros.size());
    const auto host = make_host_step_math(), device = make_gpu_step_math();
    const double expected = norm_in_pieces(*host, g.data(), dtype, {0, count});
    const auto* data = static_cast<const std::byte*>(on_gpu.data());
    const double whole = norm_in_pieces(*device, data, dtype, {0, count});
    EXPECT_NEAR(whole / expected, 1, 1e-12) << dtype_name(dtype);
    EXPECT_EQ(norm_in_pieces(*device, data, dtype, {0, 64 * 1001, count}), whole);
    device->begin();
    const std::array<const void*, 2> terms{on_gpu.data(), nothing.data()};
    device->sum_adding_squares(nothing.data(), terms, dtype, 0, count);
    device->combine(1, {.parts = 1, .loss_scale = 2, .clip = 1});
    EXPECT_EQ(device->sums().gradient_norm, whole) << dtype_name(dtype);
  }
}

TEST_F(GpuStep, ChangesNothingAfterAnOverflow) {
  for (const float bad :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(), 1e30f}) {
    std::vector<float> g(100, 1.0f);
    g[77] = bad;
    const std::vector<float> start(100, 2.0f);
    const OnGpu g_gpu(g), master(start), m(start), v(start);
    const auto math = make_gpu_step_math();
    const UpdateRange range{0, 100, true};
    const UpdateArrays arrays{.master = master.floats(),
                              .exp_avg = m.floats(),
                              .exp_avg_sq = v.floats(),
                              .gradients = g_gpu.data(),
                              .parameters = master.data()};
    math->begin();
    math->add_squares(g_gpu.data(), DType::kF32, 0, 100);
    math->combine(1, {});
    math->update({}, 1e-3, 1, {&range, 1}, arrays);
    EXPECT_TRUE(math->sums().overflow) << bad;
    EXPECT_EQ(master.values<float>(), start);
    EXPECT_EQ(m.values<float>(), start);
    math->begin();  // the next step starts clean
    math->combine(1, {});
    EXPECT_FALSE(math->sums().overflow);
  }
}

TEST_F(GpuStep, ClipsLikeTheHost) {
  const auto g = spread_values(500, 11, 100);
  const OnGpu g_gpu(g);
  float loss = 1.25f;
  const OnGpu loss_gpu(&loss, sizeof(loss));
  const NormInput input{.parts = 4, .loss_scale = 1024, .clip = 0.01};
  const auto host = make_host_step_math(), device = make_gpu_step_math();
  host->begin();
  host->add_loss({&loss, Shape{1}, DType::kF32}, 0.3);
  host->add_squares(g.data(), DType::kF32, 0, 500);
  host->combine(1, input);
  device->begin();
  device->add_loss({loss_gpu.data(), Shape{1}, DType::kF32}, 0.3);
  device->add_squares(g_gpu.data(), DType::kF32, 0, 500);
  device->message(0.5);
  device->combine(1, input);
  EXPECT_EQ(device->local_loss(), host->local_loss());
  EXPECT_EQ(device->sums().loss, host->sums().loss);
  EXPECT_EQ(device->sums().gradient_norm, host->sums().gradient_norm);
  EXPECT_EQ(device->sums().progress, 0.5);
  // What the factor did shows in exp_avg: (1 - beta1) * factor * gradient.
  std::vector<float> zero(500), master(500), m(500), v(500);
  const OnGpu master_gpu(zero), m_gpu(zero), v_gpu(zero);
  const UpdateRange range{0, 500, true};
  host->update({},
               1e-3,
               1,
               {&range, 1},
               {.master = master.data(),
                .exp_avg = m.data(),
                .exp_avg_sq = v.data(),
                .gradients = g.data(),
                .parameters = master.data()});
  device->update({},
                 1e-3,
                 1,
                 {&range, 1},
                 {.master = master_gpu.floats(),
                  .exp_avg = m_gpu.floats(),
                  .exp_avg_sq = v_gpu.floats(),
                  .gradients = g_gpu.data(),
                  .parameters = master_gpu.data()});
  EXPECT_EQ(m_gpu.values<float>(), m);
}

TEST_F(GpuStep, CombinesThreeRanksToTheBitsOfOne) {
  const auto g = spread_values(1000, 2);
  const OnGpu g_gpu(g);
  const int64_t cuts[] = {0, 320, 448, 1000};
  const auto alone = make_gpu_step_math(), math = make_gpu_step_math();
  alone->begin();
  alone->add_squares(g_gpu.data(), DType::kF32, 0, 1000);
  alone->combine(1, {});
  const auto room = math->room(3);
  double expected_loss = 0;
  for (size_t r = 0; r < 3; ++r) {
    const auto rank = make_gpu_step_math();
    float loss = 0.1f * static_cast<float>(r + 1);
    const OnGpu loss_gpu(&loss, sizeof(loss));
    expected_loss += static_cast<double>(loss);
    rank->begin();
    rank->add_loss({loss_gpu.data(), Shape{1}, DType::kF32}, 1);
    rank->add_squares(g_gpu.floats() + cuts[r], DType::kF32, cuts[r], cuts[r + 1]);
    const auto message = rank->message(0.25 + static_cast<double>(r));
    ASSERT_EQ(message.size() * 3, room.size());
    gpu().copy(room.data() + r * message.size(), message.data(), message.size());
    gpu().synchronize();
  }
  math->combine(3, {});
  EXPECT_EQ(math->sums().gradient_norm, alone->sums().gradient_norm);
  EXPECT_EQ(math->sums().loss, expected_loss);
  EXPECT_EQ(math->sums().progress, 0.25);
}

}  // namespace
}  // namespace vitrine::test

// The GPU's memory-bound kernels where they change their way of working: row widths, head sizes,
// long runs of one id, unaligned addresses, work in place; and the same bits in every run.
#include <gtest/gtest.h>

#include "core/error.h"
#include "support/gpu_fixture.h"
#include "support/op_checks.h"
#include "support/tolerance.h"

namespace vitrine::test {
namespace {

class GpuKernels : public GpuFixture {};

// Forward and backward against the reference, and the same bits when run again.
void expect_reference(const OpCase& c, std::vector<Tensor> in, DType dtype) {
  SCOPED_TRACE(c.label() + " " + dtype_name(dtype));
  const ForwardResult expected = run_forward(reference_backend(), c, in);
  const ForwardResult got = run_forward(gpu_backend(), c, in, gpu());
  expect_near(c, got.out, expected.out, gpu_row(dtype), "out");
  std::vector<Tensor> dout = output_gradients(expected);
  BackwardOptions options;
  options.f32_parameters = true;
  const auto expected_din = run_backward(reference_backend(), c, in, expected, dout, options);
  const auto din = run_backward(gpu_backend(), c, in, got, dout, options, gpu());
  const auto again = run_backward(gpu_backend(), c, in, got, dout, options, gpu());
  for (size_t i = 0; i < din.size(); ++i) {
    EXPECT_LT(relative_error(din[i].values(), expected_din[i].values(), c.floor), gpu_row(dtype))
        << "din " << i;
    EXPECT_EQ(din[i].values(), again[i].values()) << "din " << i;
  }
}

TEST_F(GpuKernels, NormRowsOfEveryWidth) {
  // Teams of one to eight warps, one to eight vectors a thread, and what no block can hold.
  for (const int64_t width :
       {8, 64, 504, 512, 520, 1032, 1536, 2048, 2304, 4096, 4104, 8960, 9224, 16384, 40000}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const Shape x{7, width}, w{width};
      const Attrs eps{{"eps", 1e-5}};
      for (const OpCase& c : {OpCase{"rms_norm", eps, {x, w}},
                              OpCase{"add_rms_norm", eps, {x, x, w}},
                              OpCase{"layer_norm", eps, {x, w, w}},
                              OpCase{"add_layer_norm", eps, {x, x, w, w}}}) {
        expect_reference(c, make_inputs(c, dtype, 5), dtype);
      }
    }
  }
}

// From 1 GFLOP on candidates are timed, own kernels among them.
TEST_F(GpuKernels, ProductsLargeEnoughToBeTimed) {
  const std::vector<Shape> shapes{{1040, 1024}, {528, 1024}};
  for (const double fp8 : {0.0, 1.0, 3.0}) {
    const OpCase c{"linear", fp8 > 0 ? Attrs{{"fp8", fp8}} : Attrs{}, shapes};
    expect_reference(c, make_inputs(c, DType::kBF16, 15), DType::kBF16);
  }
}

TEST_F(GpuKernels, NormGradientsOfMoreRowsThanBlocks) {
  // Of every layout: so many rows that each team's copies go around their stages. Of widths that
  // are no whole vectors blocks leave more sums than one round of loads adds.
  struct Rows {
    int64_t rows, width;
  };
  for (const auto& [rows, width] : {Rows{701, 12},
                                    Rows{701, 33},
                                    Rows{9001, 64},
                                    Rows{6401, 512},
                                    Rows{3301, 768},
                                    Rows{1601, 1536},
                                    Rows{1601, 2304},
                                    Rows{1101, 3584},
                                    Rows{1101, 4104},
                                    Rows{551, 8200}}) {
    const Shape x{rows, width}, w{width};
    const Attrs eps{{"eps", 1e-5}};
    for (const OpCase& c : {OpCase{"rms_norm", eps, {x, w}},
                            OpCase{"add_layer_norm", eps, {x, x, w, w}},
                            OpCase{"layer_norm", eps, {x, w, w}}}) {
      expect_reference(c, make_inputs(c, DType::kBF16, 6), DType::kBF16);
    }
  }
}

TEST_F(GpuKernels, HeadsOfEverySize) {
  for (const int64_t d : {8, 64, 72, 128, 256, 264, 30}) {
    const auto size = static_cast<double>(d);
    const OpCase norm{"qk_norm",
                      {{"heads", 6}, {"kv_heads", 2}, {"head_dim", size}, {"eps", 1e-6}},
                      {{95, 10 * d}, {d}, {d}}};
    const OpCase rotary{"rotary",
                        {{"heads", 7}, {"head_dim", size}, {"base", 1e4}, {"axis", 1}},
                        {{2, 50, 2, 10 * d}}};
    OpCase turned = norm;
    turned.shapes[0] = {5, 19, 10 * d};
    turned.attrs.set("base", 1e4);
    turned.attrs.set("axis", 1);
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      expect_reference(norm, make_inputs(norm, dtype, 7), dtype);
      expect_reference(turned, make_inputs(turned, dtype, 7), dtype);
      expect_reference(rotary, make_inputs(rotary, dtype, 8), dtype);
    }
  }
}

TEST_F(GpuKernels, EmbeddingGradientsOfLongRunsOfOneId) {
  const OpCase c{"embedding", {}, {{1000}, {300, 136}}, 300};
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int period : {1, 2, 100}) {
      auto in = make_inputs(c, dtype, 9);
      for (int64_t i = 0; i < 1000; ++i) {
        if (i % period != 0 || period == 1) in[0].set(i, 17);
      }
      expect_reference(c, in, dtype);
    }
  }
}

// More than one block sorts.
TEST_F(GpuKernels, EmbeddingGradientsOfManyIds) {
  const OpCase c{"embedding", {}, {{20011}, {700, 24}}, 700};
  expect_reference(c, make_inputs(c, DType::kF32, 13), DType::kF32);
  const OpCase few{"embedding", {}, {{16384}, {1024, 8}}, 1024};
  expect_reference(few, make_inputs(few, DType::kF32, 14), DType::kF32);
}

TEST_F(GpuKernels, AnIdOutsideTheVocabularyShowsWhenTheDeviceIsSynchronized) {
  const OpCase c{"embedding", {}, {{40}, {300, 16}}, 300};
  for (const double bad : {300.0, -1.0}) {
    auto in = make_inputs(c, DType::kF32, 10);
    in[0].set(33, bad);
    try {
      run_forward(gpu_backend(), c, in, gpu());
      FAIL() << "not thrown";
    } catch (const ShapeError& error) {
      EXPECT_NE(std::string(error.what()).find("place 33"), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("300"), std::string::npos) << error.what();
    }
  }
  auto good = make_inputs(c, DType::kF32, 11);
  EXPECT_NO_THROW(run_forward(gpu_backend(), c, good, gpu()));
}

TEST_F(GpuKernels, RotaryTurnsInPlaceAndBack) {
  const OpCase c{
      "rotary", {{"heads", 5}, {"head_dim", 16}, {"base", 1e4}, {"axis", 0}}, {{33, 112}}};
  auto in = make_inputs(c, DType::kF32, 12);
  const ForwardResult apart = run_forward(gpu_backend(), c, in, gpu());
  const size_t bytes = in[0].view().bytes();
  TensorView view = in[0].view();
  view.data = gpu().allocate(bytes);
  gpu().upload(view.data, in[0].view().data, bytes);
  const OpKernels& rotary = gpu_backend().kernels("rotary");
  rotary.forward({&c.attrs, {&view, 1}, {&view, 1}, {}, nullptr});
  Tensor turned(in[0].type());
  gpu().download(turned.view().data, view.data, bytes);
  EXPECT_EQ(turned.values(), apart.out[0].values());
  const GradView gradient{view, false};
  rotary.backward({&c.attrs, {}, {}, {}, nullptr}, {&view, 1}, {&gradient, 1});
  gpu().download(turned.view().data, view.data, bytes);
  EXPECT_LT(relative_error(turned.values(), in[0].values()), gpu_row(DType::kF32));
  gpu().release(view.data, bytes);
}

// Forward and backward, with gradients written over and added to, of operands that no 16-byte
// access fits.
TEST_F(GpuKernels, UnalignedAddressesGiveWhatTheReferenceGives) {
  const Shape z{2, 5, 18, 16}, x{9, 18, 16}, channel{16};
  for (const OpCase& c : {OpCase{"swiglu", {}, {{9, 128}}},
                          OpCase{"layer_norm", {{"eps", 1e-5}}, {x, channel, channel}},
                          OpCase{"add_broadcast", {{"dims", 0b1100}}, {z, {18, 16}}},
                          OpCase{"add_broadcast", {{"dims", 0b1011}}, {z, {2, 5, 16}}},
                          OpCase{"gated_sigmoid", {}, {z, channel, channel}},
                          OpCase{"frame_difference", {}, {z}},
                          OpCase{"shift_window", {}, {z, z}},
                          OpCase{"prepend_token", {}, {x, channel}},
                          OpCase{"take_token", {{"index", 3}}, {x}},
                          OpCase{"mean_pool", {}, {x}}}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      SCOPED_TRACE(c.label() + " " + dtype_name(dtype));
      auto in = make_inputs(c, dtype, 16);
      BackwardOptions options;
      options.offset_bytes = 4;
      const ForwardResult expected = run_forward(reference_backend(), c, in);
      const ForwardResult got = run_forward(gpu_backend(), c, in, gpu(), options.offset_bytes);
      expect_near(c, got.out, expected.out, gpu_row(dtype), "out");
      auto dout = output_gradients(expected);
      for (const Tensor& tensor : in) {
        options.initial.push_back(random_values(tensor.type().shape.elements(), 9));
      }
      for (const bool accumulate : {false, true}) {
        options.accumulate = accumulate;
        expect_near(c,
                    run_backward(gpu_backend(), c, in, got, dout, options, gpu()),
                    run_backward(reference_backend(), c, in, expected, dout, options),
                    gpu_row(dtype),
                    "din");
      }
    }
  }
}

// Sums over rows: in one launch by blocks of 32 and of 8 vectors and by large blocks, in chunks of
// many and of few columns, and with rows left over in each.
TEST_F(GpuKernels, SumsOverRowsHoweverTheyAreCut) {
  const OpCase cases[] = {
      {"mean_pool", {}, {{96, 33, 512}}},
      {"mean_pool", {}, {{96, 35, 1032}}},
      {"add_broadcast", {{"dims", 0b1100}}, {{3, 43, 24, 512}, {24, 512}}},
      {"add_broadcast", {{"dims", 0b1010}}, {{19, 6, 27, 512}, {6, 512}}},
      {"add_broadcast", {{"dims", 0b1000}}, {{7, 3, 41, 264}, {264}}},
      {"add_broadcast", {{"dims", 0b0101}}, {{3, 5, 7, 300}, {3, 7}}},
      {"gated_sigmoid", {}, {{5003, 520}, {520}, {520}}},
      {"gated_sigmoid", {}, {{20011, 24}, {24}, {24}}},
      {"gated_sigmoid", {}, {{90, 25000}, {25000}, {25000}}},
      {"gated_sigmoid", {}, {{1009, 7}, {7}, {7}}},
      {"linear", {}, {{5003, 16}, {264, 16}, {264}}},
      {"linear", {}, {{3001, 16}, {40, 16}, {40}}},
  };
  for (const OpCase& c : cases) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      expect_reference(c, make_inputs(c, dtype, 17), dtype);
    }
  }
}

TEST_F(GpuKernels, FramesInRunsOfEveryLength) {
  for (const int64_t time : {1, 2, 4, 5, 8, 11}) {
    for (const int64_t width : {16, 17}) {
      const OpCase c{"frame_difference", {}, {{3, time, 6, width}}};
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        expect_reference(c, make_inputs(c, dtype, 18), dtype);
      }
    }
  }
}

// Enough tokens that one kernel makes both gradients, more sequences than a block adds at once.
TEST_F(GpuKernels, TokensOfManySequences) {
  for (const int64_t width : {16, 72, 33}) {
    for (const int64_t batch : {1, 31, 261}) {
      const OpCase c{"prepend_token", {}, {{batch, 19, width}, {width}}};
      const OpCase mean{"mean_pool", {}, {{batch, 19, width}}};
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        expect_reference(c, make_inputs(c, dtype, 19), dtype);
        expect_reference(mean, make_inputs(mean, dtype, 20), dtype);
      }
    }
  }
}

}  // namespace
}  // namespace vitrine::test

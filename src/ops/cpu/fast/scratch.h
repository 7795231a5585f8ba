// Scratch of a thread that grows and is kept, so that no call allocates in the steady state.
#pragma once

#include <cstdint>

namespace vitrine::fast {

// Who uses a buffer; a kernel may hold several at a time, each under its own name.
enum class Scratch {
  kRowA,
  kRowB,
  kRowC,
  kRowD,
  kRowE,  // single rows, widened to f32
  kParameterA,
  kParameterB,  // parameters widened to f32
  kPartial,     // partial sums of all parts
  kTileA,
  kTileB,
  kTileC,
  kTileD,
  kTileE,
  kTileF,
  kTileG,
  kTileH,  // attention tiles
  kGemmA,
  kGemmB,
  kGemmC,  // operands of a matrix product in f32
  kRoundedX,
  kRoundedW,
  kRoundedGradient,  // operands of a product that went through fp8
  kRowLoss,
  kSort,
  kCount
};

// `count` floats, 64-byte aligned, valid until this thread asks for the same buffer again.
float* scratch(Scratch which, int64_t count);

}  // namespace vitrine::fast

// What a GPU sustains: products back to back for long enough that it is as hot, and as limited by
// its power, as in training; and what the host takes to issue an operation.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace vitrine {

// linear: [rows, in] x [out, in]^T.
struct ProductShape {
  int64_t rows = 0, in = 0, out = 0;
  bool fp8 = false;  // operands in bf16, rounded to 8 bits in each call
};

struct SustainedProduct {
  ProductShape shape;
  double forward_ns = 0, backward_ns = 0;  // of one call; backward: both gradients
};

// In bf16 with random operands, in lane 0 of GPU `gpu`, after a second of products that do not
// count; each shape and direction for about `seconds`. Shapes whose operands take more than
// `room_bytes`, and fp8 before architecture 8.9, are left out. Throws DeviceError, and OutOfMemory
// where less is free than `room_bytes` says.
std::vector<SustainedProduct> sustained_products(int gpu,
                                                 std::span<const ProductShape> shapes,
                                                 double seconds,
                                                 double room_bytes);

// Nanoseconds between two operations that the host issues one after the other to a GPU that has
// nothing else to do.
double gpu_issue_ns(int gpu);

}  // namespace vitrine

// Shapes of up to six dimensions, row-major, and views of memory that never own it.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "core/dtype.h"

namespace vitrine {

class Shape {
 public:
  static constexpr int kMaxRank = 6;

  Shape() = default;
  Shape(std::initializer_list<int64_t> dims);
  explicit Shape(const std::vector<int64_t>& dims);

  int rank() const { return rank_; }
  // Negative indices count from the last dimension.
  int64_t operator[](int i) const { return dims_[static_cast<size_t>(i < 0 ? i + rank_ : i)]; }
  int64_t elements() const;
  // Product of all dimensions but the last: the number of rows when the last is the feature size.
  int64_t rows() const {
    return rank_ == 0 ? 1 : elements() / (dims_[static_cast<size_t>(rank_ - 1)]);
  }
  std::vector<int64_t> dims() const { return {dims_.begin(), dims_.begin() + rank_}; }
  Shape with_last(int64_t last) const;
  // "[2, 3, 4]"
  std::string str() const;
  bool operator==(const Shape& other) const;

 private:
  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

// Contiguous, row-major. A null `data` means "not wanted" where a function says so.
struct TensorView {
  void* data = nullptr;
  Shape shape;
  DType dtype = DType::kF32;

  int64_t elements() const { return shape.elements(); }
  size_t bytes() const { return static_cast<size_t>(elements()) * dtype_bytes(dtype); }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data);
  }
  explicit operator bool() const { return data != nullptr; }
};

}  // namespace vitrine

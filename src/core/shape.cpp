// Shape arithmetic.
#include "core/shape.h"

#include "core/error.h"

namespace vitrine {

Shape::Shape(std::initializer_list<int64_t> dims) : Shape(std::vector<int64_t>(dims)) {}

Shape::Shape(const std::vector<int64_t>& dims) : rank_(static_cast<int>(dims.size())) {
  if (dims.size() > kMaxRank) {
    throw ShapeError("a shape has at most 6 dimensions, got " + std::to_string(dims.size()));
  }
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] < 0) throw ShapeError("a dimension is negative: " + std::to_string(dims[i]));
    dims_[i] = dims[i];
  }
}

int64_t Shape::elements() const {
  int64_t count = 1;
  for (int i = 0; i < rank_; ++i) count *= dims_[static_cast<size_t>(i)];
  return count;
}

Shape Shape::with_last(int64_t last) const {
  VITRINE_ASSERT(rank_ > 0);
  Shape copy = *this;
  copy.dims_[static_cast<size_t>(rank_ - 1)] = last;
  return copy;
}

std::string Shape::str() const {
  std::string text = "[";
  for (int i = 0; i < rank_; ++i) {
    if (i) text += ", ";
    text += std::to_string(dims_[static_cast<size_t>(i)]);
  }
  return text + "]";
}

bool Shape::operator==(const Shape& other) const {
  if (rank_ != other.rank_) return false;
  for (int i = 0; i < rank_; ++i) {
    if (dims_[static_cast<size_t>(i)] != other.dims_[static_cast<size_t>(i)]) return false;
  }
  return true;
}

}  // namespace vitrine

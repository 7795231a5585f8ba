// NumPy's .npy files (format 1.0, C order): a streaming writer and a memory-mapped reader.
// Source: numpy/doc of the NPY format,
// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#pragma once

#include <cstdint>
#include <string>

#include "core/dtype.h"
#include "core/mapped_file.h"
#include "core/shape.h"

namespace vitrine {

// Appends rows to an array of shape [N, row...] whose N is known only at the end. The bytes go to a
// temporary file beside `path`; finish() writes the true header and renames, and a writer that is
// destroyed before that leaves nothing behind. dtype: u8, i32 or f32. Throws IoError; ShapeError
// for other dtypes.
class NpyWriter {
 public:
  NpyWriter(std::string path, DType dtype, const Shape& row);
  ~NpyWriter();
  NpyWriter(const NpyWriter&) = delete;
  NpyWriter& operator=(const NpyWriter&) = delete;

  void append(const void* rows, int64_t count);
  void finish();

  int64_t count() const { return count_; }
  DType dtype() const { return dtype_; }

 private:
  void write_all(const void* bytes, size_t size, int64_t offset);

  std::string path_, temporary_;
  DType dtype_;
  Shape row_;
  int64_t row_bytes_ = 0, count_ = 0;
  int fd_ = -1;
};

// Writes a whole array at once.
void write_npy(const std::string& path, const TensorView& array);

// An array in a mapped file; rank 1 to 6, little-endian u8, i32 or f32.
class NpyArray {
 public:
  NpyArray() = default;
  // Throws IoError when the header is not exactly that of such an array, or when the file holds
  // fewer or more bytes than the header promises.
  explicit NpyArray(const std::string& path);

  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  const std::string& path() const { return file_.path(); }
  int64_t rows() const { return shape_[0]; }
  int64_t row_elements() const { return row_elements_; }
  // First element of row `i`; T must match dtype().
  template <typename T>
  const T* row(int64_t i) const {
    return reinterpret_cast<const T*>(data_) + i * row_elements_;
  }

 private:
  MappedFile file_;
  const uint8_t* data_ = nullptr;
  DType dtype_ = DType::kU8;
  Shape shape_;
  int64_t row_elements_ = 1;
};

}  // namespace vitrine

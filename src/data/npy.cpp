// .npy headers: written padded to a fixed size so that the count can be filled in last; parsed
// strictly.
#include "data/npy.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"

namespace vitrine {
namespace {

// Magic, version and header length take 10 bytes; the dictionary is padded so that data is
// 64-aligned.
constexpr int64_t kPrefix = 10;
constexpr int64_t kWrittenHeader = 128;
constexpr std::string_view kMagic("\x93NUMPY", 6);

const char* descr_of(DType dtype) {
  switch (dtype) {
    case DType::kU8:
      return "|u1";
    case DType::kI32:
      return "<i4";
    case DType::kF32:
      return "<f4";
    default:
      throw ShapeError(std::string(".npy: expected u8, i32 or f32, got ") + dtype_name(dtype));
  }
}

std::string header_bytes(DType dtype, int64_t count, const Shape& row) {
  std::string dims = std::to_string(count) + ",";
  for (int i = 0; i < row.rank(); ++i) dims += " " + std::to_string(row[i]) + ",";
  if (row.rank() > 0) dims.pop_back();  // Python writes (3,) but (3, 4)
  std::string dictionary = std::string("{'descr': '") + descr_of(dtype) +
                           "', 'fortran_order': False, 'shape': (" + dims + "), }";
  dictionary.resize(static_cast<size_t>(kWrittenHeader - kPrefix - 1), ' ');
  dictionary += '\n';
  const auto length = static_cast<uint16_t>(dictionary.size());
  std::string header(kMagic);
  header += {'\x01', '\x00', static_cast<char>(length & 255), static_cast<char>(length >> 8)};
  return header + dictionary;
}

// Reads the one-line Python dictionary of a header; anything unforeseen is an error.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, std::string path) : text_(text), path_(std::move(path)) {}

  void parse() {
    expect('{');
    while (!accept('}')) {
      const std::string key = quoted();
      expect(':');
      if (key == "descr" && !descr) {
        descr = quoted();
      } else if (key == "fortran_order" && !fortran) {
        fortran = boolean();
      } else if (key == "shape" && !dims) {
        dims = tuple();
      } else {
        fail("unknown or repeated key '" + key + "'");
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_spaces();
    if (at_ != text_.size()) fail("text after the dictionary");
    if (!descr || !fortran || !dims) fail("it must hold descr, fortran_order and shape");
  }

  std::optional<std::string> descr;
  std::optional<bool> fortran;
  std::optional<std::vector<int64_t>> dims;

  [[noreturn]] void fail(const std::string& why) const {
    throw IoError(path_ + ": bad .npy header at byte " + std::to_string(kPrefix + int64_t(at_)) +
                  ": " + why);
  }

 private:
  void skip_spaces() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  bool accept(char c) {
    skip_spaces();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail(std::string("expected '") + c + "'");
  }
  std::string quoted() {
    expect('\'');
    const size_t end = text_.find('\'', at_);
    if (end == std::string_view::npos) fail("a text without its closing quote");
    const std::string value(text_.substr(at_, end - at_));
    at_ = end + 1;
    return value;
  }
  bool boolean() {
    skip_spaces();
    for (const bool value : {true, false}) {
      const std::string_view word = value ? "True" : "False";
      if (text_.substr(at_, word.size()) != word) continue;
      at_ += word.size();
      return value;
    }
    fail("expected True or False");
  }
  int64_t number() {
    skip_spaces();
    const size_t begin = at_;
    int64_t value = 0;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
      if (__builtin_mul_overflow(value, 10, &value) ||
          __builtin_add_overflow(value, text_[at_] - '0', &value)) {
        fail("a dimension is too large");
      }
      ++at_;
    }
    if (at_ == begin) fail("expected a dimension");
    return value;
  }
  std::vector<int64_t> tuple() {
    std::vector<int64_t> values;
    expect('(');
    while (!accept(')')) {
      values.push_back(number());
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return values;
  }

  std::string_view text_;
  std::string path_;
  size_t at_ = 0;
};

}  // namespace

NpyWriter::NpyWriter(std::string path, DType dtype, const Shape& row)
    : path_(std::move(path)),
      temporary_(path_ + ".tmp" + std::to_string(getpid())),
      dtype_(dtype),
      row_(row),
      row_bytes_(row.elements() * static_cast<int64_t>(dtype_bytes(dtype))) {
  const std::string header = header_bytes(dtype, 0, row);
  if (row.rank() >= Shape::kMaxRank) {
    throw ShapeError(path_ + ": rows of rank " + std::to_string(row.rank()) +
                     ", at most 5 are supported");
  }
  fd_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd_ < 0) throw IoError("cannot create " + temporary_ + ": " + std::strerror(errno));
}

NpyWriter::~NpyWriter() {
  if (fd_ < 0) return;
  close(fd_);
  unlink(temporary_.c_str());
}

void NpyWriter::write_all(const void* bytes, size_t size, int64_t offset) {
  const char* from = static_cast<const char*>(bytes);
  while (size > 0) {
    const ssize_t n = pwrite(fd_, from, size, offset);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) throw IoError("cannot write " + temporary_ + ": " + std::strerror(errno));
    from += n;
    offset += n;
    size -= static_cast<size_t>(n);
  }
}

void NpyWriter::append(const void* rows, int64_t count) {
  VITRINE_ASSERT(fd_ >= 0 && count >= 0);
  write_all(rows, static_cast<size_t>(count * row_bytes_), kWrittenHeader + count_ * row_bytes_);
  count_ += count;
}

void NpyWriter::finish() {
  VITRINE_ASSERT(fd_ >= 0);
  const std::string header = header_bytes(dtype_, count_, row_);
  write_all(header.data(), header.size(), 0);
  if (close(std::exchange(fd_, -1)) != 0 || std::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int error = errno;
    unlink(temporary_.c_str());
    throw IoError("cannot write " + path_ + ": " + std::strerror(error));
  }
}

void write_npy(const std::string& path, const TensorView& array) {
  if (array.shape.rank() == 0) throw ShapeError(path + ": expected an array of rank 1 or more");
  const std::vector<int64_t> dims = array.shape.dims();
  NpyWriter writer(path, array.dtype, Shape(std::vector<int64_t>(dims.begin() + 1, dims.end())));
  writer.append(array.data, dims[0]);
  writer.finish();
}

NpyArray::NpyArray(const std::string& path) : file_(path) {
  const auto bytes = file_.bytes();
  const auto size = static_cast<int64_t>(bytes.size());
  if (size < kPrefix || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) {
    throw IoError(path + ": not a .npy file (it does not begin with \\x93NUMPY)");
  }
  if (bytes[6] != 1 || bytes[7] != 0) {
    throw IoError(path + ": .npy format " + std::to_string(bytes[6]) + "." +
                  std::to_string(bytes[7]) + ", only 1.0 is read; save it again with numpy.save");
  }
  const int64_t header = kPrefix + bytes[8] + 256 * bytes[9];
  if (header > size) throw IoError(path + ": truncated within the .npy header");
  HeaderParser parser({reinterpret_cast<const char*>(bytes.data()) + kPrefix,
                       static_cast<size_t>(header - kPrefix)},
                      path);
  parser.parse();

  if (*parser.fortran) {
    throw IoError(path + ": stored in Fortran order; save numpy.ascontiguousarray(array) instead");
  }
  bool known = false;
  for (const DType dtype : {DType::kU8, DType::kI32, DType::kF32}) {
    if (*parser.descr != descr_of(dtype)) continue;
    dtype_ = dtype;
    known = true;
  }
  if (!known) {
    throw IoError(path + ": element type '" + *parser.descr +
                  "', expected '|u1' (uint8), '<i4' (int32) or '<f4' (float32)");
  }
  const std::vector<int64_t>& dims = *parser.dims;
  if (dims.empty() || dims.size() > static_cast<size_t>(Shape::kMaxRank)) {
    throw IoError(path + ": an array of rank " + std::to_string(dims.size()) + ", expected 1 to 6");
  }
  int64_t wanted = static_cast<int64_t>(dtype_bytes(dtype_));
  for (const int64_t dim : dims) {
    if (__builtin_mul_overflow(wanted, dim, &wanted)) parser.fail("the array is too large");
  }
  if (wanted != size - header) {
    throw IoError(path + ": the header promises " + std::to_string(wanted) +
                  " bytes of data but the file holds " + std::to_string(size - header) +
                  (wanted > size - header ? "; it is truncated, make or copy it again"
                                          : "; it is not a single array"));
  }
  shape_ = Shape(dims);
  for (int i = 1; i < shape_.rank(); ++i) row_elements_ *= shape_[i];
  data_ = bytes.data() + header;
}

}  // namespace vitrine

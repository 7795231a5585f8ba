// .npy files: what NumPy wrote is read, what we write has NumPy's bytes, and bad files are refused.
#include "data/npy.h"

#include <cstdlib>
#include <cstring>
#include <numeric>

#include "core/error.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

// numpy.save(arange(6, dtype=int32).reshape(2, 3)) by NumPy 1.24.
std::string numpy_bytes() {
  std::string text("\x93NUMPY\x01\x00\x76\x00", 10);
  std::string dictionary = "{'descr': '<i4', 'fortran_order': False, 'shape': (2, 3), }";
  dictionary.resize(117, ' ');
  text += dictionary + "\n";
  for (const int32_t value : {0, 1, 2, 3, 4, 5}) {
    text.append(reinterpret_cast<const char*>(&value), 4);
  }
  return text;
}

std::string with_header(const std::string& dictionary, size_t data_bytes) {
  std::string text("\x93NUMPY\x01\x00", 8);
  text += static_cast<char>(dictionary.size());
  text += '\0';
  return text + dictionary + std::string(data_bytes, '\0');
}

TEST(Npy, WritesTheBytesThatNumPyWrites) {
  ScratchFolder folder;
  const std::string path = folder / "a.npy";
  NpyWriter writer(path, DType::kI32, Shape{3});
  const int32_t values[] = {0, 1, 2, 3, 4, 5};
  writer.append(values, 1);
  writer.append(values + 3, 1);
  EXPECT_FALSE(std::filesystem::exists(path));
  writer.finish();
  EXPECT_EQ(read_text_file(path), numpy_bytes());
}

TEST(Npy, ReadsTheBytesThatNumPyWrites) {
  ScratchFolder folder;
  write_text_file(folder / "a.npy", numpy_bytes());
  const NpyArray array(folder / "a.npy");
  EXPECT_EQ(array.dtype(), DType::kI32);
  EXPECT_EQ(array.shape(), (Shape{2, 3}));
  EXPECT_EQ(array.row<int32_t>(1)[2], 5);
}

TEST(Npy, NumPyReadsEveryTypeAndRankThatWeWrite) {
  if (std::system("/usr/bin/python3 -c 'import numpy' 2>/dev/null") != 0)
    GTEST_SKIP() << "no python3-numpy";
  ScratchFolder folder;
  std::vector<float> floats(24);
  std::iota(floats.begin(), floats.end(), -3.5f);
  std::vector<uint8_t> bytes(300);
  std::iota(bytes.begin(), bytes.end(), uint8_t{0});
  std::vector<int32_t> line = {7, -8, 9};
  write_npy(folder / "f.npy", {floats.data(), Shape{2, 3, 4}, DType::kF32});
  write_npy(folder / "u.npy", {bytes.data(), Shape{5, 20, 1, 3}, DType::kU8});
  write_npy(folder / "i.npy", {line.data(), Shape{3}, DType::kI32});
  const std::string check =
      "cd " + folder.path() +
      " && /usr/bin/python3 -c \"import numpy as n; f=n.load('f.npy'); u=n.load('u.npy'); "
      "i=n.load('i.npy');"
      "assert (f==n.arange(24,dtype='f4').reshape(2,3,4)-3.5).all() and f.dtype=='f4';"
      "assert (u==(n.arange(300)%256).reshape(5,20,1,3)).all() and u.dtype=='u1';"
      "assert i.tolist()==[7,-8,9] and i.dtype=='i4';"
      "n.save('back.npy', f*2)\"";
  ASSERT_EQ(std::system(check.c_str()), 0);
  const NpyArray back(folder / "back.npy");
  EXPECT_EQ(back.shape(), (Shape{2, 3, 4}));
  EXPECT_EQ(back.row<float>(1)[11], 2 * floats[23]);
}

TEST(Npy, LeavesNothingBehindWhenNotFinished) {
  ScratchFolder folder;
  {
    NpyWriter writer(folder / "a.npy", DType::kU8, Shape{4});
    writer.append("abcd", 1);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Npy, SaysThatAFileIsTruncated) {
  ScratchFolder folder;
  const std::string whole = numpy_bytes();
  write_text_file(folder / "a.npy", whole.substr(0, whole.size() - 3));
  const auto open = [&] { NpyArray(folder / "a.npy"); };
  const std::string message = message_of<IoError>(open);
  EXPECT_CONTAINS(message, "promises 24 bytes");
  EXPECT_CONTAINS(message, "holds 21");
  EXPECT_CONTAINS(message, "truncated");
  write_text_file(folder / "a.npy", whole.substr(0, 50));
  EXPECT_CONTAINS(message_of<IoError>(open), "truncated within the .npy header");
  write_text_file(folder / "a.npy", "");
  EXPECT_CONTAINS(message_of<IoError>(open), "empty");
  write_text_file(folder / "a.npy", whole + "x");
  EXPECT_CONTAINS(message_of<IoError>(open), "not a single array");
}

TEST(Npy, RefusesHeadersThatAreNotExactlyOurs) {
  ScratchFolder folder;
  const auto refused = [&](const std::string& text) {
    write_text_file(folder / "a.npy", text);
    return message_of<IoError>([&] { NpyArray(folder / "a.npy"); });
  };
  const std::string head = "{'descr': '<i4', 'fortran_order': ";
  EXPECT_CONTAINS(refused("PNG and so on, longer than ten"), "not a .npy file");
  EXPECT_CONTAINS(refused(with_header(head + "True, 'shape': (1,), }\n", 4)), "Fortran");
  EXPECT_CONTAINS(refused(with_header(head + "False, 'shape': (), }\n", 4)), "rank 0");
  EXPECT_CONTAINS(refused(with_header(head + "False, 'shape': (1, }\n", 4)), "dimension");
  EXPECT_CONTAINS(refused(with_header(head + "False, 'shape': (-1,), }\n", 4)), "dimension");
  EXPECT_CONTAINS(refused(with_header(head + "False, }\n", 4)), "must hold");
  EXPECT_CONTAINS(refused(with_header(head + "False, 'shape': (1,), } x\n", 4)),
                  "after the dictionary");
  EXPECT_CONTAINS(refused(with_header(head + "Perhaps, 'shape': (1,), }\n", 4)), "True or False");
  EXPECT_CONTAINS(refused(with_header(head + "False, 'shape': (1,), 'more': 1, }\n", 4)), "'more'");
  EXPECT_CONTAINS(refused(with_header(head + "False, 'shape': (4611686018427387904, 4), }\n", 4)),
                  "too large");
  EXPECT_CONTAINS(
      refused(with_header("{'descr': '>i4', 'fortran_order': False, 'shape': (1,), }\n", 4)),
      "'>i4'");
  std::string version_two = numpy_bytes();
  version_two[6] = '\x02';
  EXPECT_CONTAINS(refused(version_two), "format 2.0");
  EXPECT_CONTAINS(message_of<IoError>([&] { NpyArray(folder / "none.npy"); }), "none.npy");
}

}  // namespace
}  // namespace vitrine

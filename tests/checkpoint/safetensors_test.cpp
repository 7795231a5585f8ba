// safetensors: written files pass an independent reader, foreign files are read, broken ones are
// refused.
#include "checkpoint/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <numeric>

#include "core/error.h"
#include "core/json.h"
#include "core/sha256.h"
#include "support/shell.h"
#include "support/temporary_folder.h"

namespace vitrine {
namespace {

template <typename T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

std::string hash(std::span<const std::byte> bytes) {
  Sha256 sha;
  sha.update(bytes.data(), bytes.size());
  return sha.hex();
}

// A file with any header text over `body` zero bytes.
std::string file_of(const std::string& header, size_t body) {
  std::string out;
  for (size_t i = 0; i < 8; ++i) out += static_cast<char>(header.size() >> (8 * i) & 0xff);
  return out + header + std::string(body, '\0');
}

TEST(Safetensors, AnIndependentReaderAcceptsWhatIsWritten) {
  if (!have_python()) GTEST_SKIP() << "no python3";
  const TemporaryFolder folder;
  std::vector<uint8_t> odd = {1, 2, 3};
  std::vector<float> floats(6);
  std::iota(floats.begin(), floats.end(), 0.5f);
  std::vector<bf16> halves = {to_bf16(1), to_bf16(2)};
  SafetensorsWriter writer;
  writer.add("odd", DType::kU8, {3}, bytes_of(odd));
  writer.add("halves", DType::kBF16, {2, 1}, bytes_of(halves));
  writer.add("floats", DType::kF32, {2, 3}, bytes_of(floats));
  writer.set_metadata("step", "7");
  const auto result = writer.write(folder / "t.safetensors");
  const auto [text, status] =
      run_shell("python3 tools/read_safetensors.py " + (folder / "t.safetensors"));
  EXPECT_EQ(status, 0) << text;
  EXPECT_EQ(text,
            "metadata {\"step\": \"7\"}\nfloats F32 [2, 3] " + hash(bytes_of(floats)) +
                "\nhalves BF16 [2, 1] " + hash(bytes_of(halves)) + "\nodd U8 [3] " +
                hash(bytes_of(odd)) + "\n");
  EXPECT_EQ(result.sha256, sha256_of_file(folder / "t.safetensors"));
  EXPECT_EQ(result.bytes, std::filesystem::file_size(folder / "t.safetensors"));
}

TEST(Safetensors, ReadsAFileThatPythonWrote) {
  if (!have_python()) GTEST_SKIP() << "no python3";
  const TemporaryFolder folder;
  ASSERT_EQ(run_shell("python3 tools/read_safetensors.py --write " + (folder / "p")).second, 0);
  const SafetensorsFile file(folder / "p");
  ASSERT_EQ(file.entries().size(), 4u);
  EXPECT_EQ(file.metadata().at("made"), "by python");
  const SafetensorsEntry& a = file.find("a");
  EXPECT_EQ(a.shape, (std::vector<int64_t>{2, 3}));
  std::vector<float> values(6);
  std::memcpy(values.data(), file.data(a).data(), a.bytes);
  EXPECT_EQ(values, (std::vector<float>{0, 1, 2, 3, 4, 5}));
  EXPECT_FALSE(file.find("b").readable);
  EXPECT_EQ(file.find("b").dtype_text, "I64");
  EXPECT_EQ(file.find("empty").bytes, 0u);
  EXPECT_TRUE(file.find("scalar").shape.empty());
}

TEST(Safetensors, RoundTripsAndSuggestsNames) {
  const TemporaryFolder folder;
  const std::vector<double> values = {1, 2, 3};
  SafetensorsWriter writer;
  writer.add("body.0.wq", DType::kF64, {3}, bytes_of(values));
  const auto result = writer.write(folder / "t");
  const SafetensorsFile file(folder / "t");
  EXPECT_EQ(file.find("body.0.wq").offset, result.entries[0].offset);
  EXPECT_EQ(hash(file.data(file.find("body.0.wq"))), hash(bytes_of(values)));
  try {
    file.find("body.0.wk");
    FAIL();
  } catch (const IoError& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean \"body.0.wq\""), std::string::npos);
  }
}

TEST(Safetensors, WriterRefusesWrongSizesAndTakenNames) {
  const std::vector<float> two(2);
  SafetensorsWriter writer;
  writer.add("a", DType::kF32, {2}, bytes_of(two));
  EXPECT_THROW(writer.add("a", DType::kF32, {2}, bytes_of(two)), ConfigError);
  EXPECT_THROW(writer.add("b", DType::kF32, {3}, bytes_of(two)), ShapeError);
  EXPECT_THROW(writer.add("c", DType::kF32, {-2}, bytes_of(two)), ShapeError);
  EXPECT_THROW(writer.write("/nowhere/t"), IoError);
}

struct Broken {
  const char* what;
  std::string bytes;
  const char* message;
};

TEST(Safetensors, RefusesBrokenFilesAndSaysWhy) {
  const auto one = [](const char* dtype, const char* shape, const char* range) {
    return std::string("{\"a\":{\"dtype\":\"") + dtype + "\",\"shape\":" + shape +
           ",\"data_offsets\":" + range + "}}";
  };
  const std::string good = one("F32", "[2]", "[0,8]");
  const Broken cases[] = {
      {"empty", "", "is empty"},
      {"short", "1234567", "7 bytes"},
      {"header beyond the file", file_of(good, 8).substr(0, 20), "claims"},
      {"huge header", std::string(8, '\xff') + "{}", "claims"},
      {"no JSON", file_of("hello", 0), "not a JSON object"},
      {"cut JSON", file_of(good.substr(0, 30), 8), "not valid JSON"},
      {"array", file_of("[1]", 0), "not a JSON object"},
      {"data cut", file_of(good, 7), "cut"},
      {"extra data", file_of(good, 9), "belong to none"},
      {"unknown dtype", file_of(one("F33", "[2]", "[0,8]"), 8), "unknown dtype F33"},
      {"wrong size", file_of(one("F32", "[3]", "[0,8]"), 8), "ask for 12"},
      {"negative dim", file_of(one("F32", "[-2]", "[0,8]"), 8), "shape"},
      {"overflowing shape",
       file_of(one("F32", "[4294967296,4294967296,4]", "[0,8]"), 8),
       "ask for"},
      {"reversed range", file_of(one("F32", "[2]", "[8,0]"), 8), "[8,0]"},
      {"three offsets", file_of(one("F32", "[2]", "[0,8,9]"), 8), "data_offsets"},
      {"no shape", file_of("{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]}}", 8), "shape"},
      {"twice", file_of("{\"a\":1,\"a\":2}", 0), "twice"},
      {"overlap",
       file_of("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
               "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[2,6]}}",
               6),
       "overlaps"},
      {"hole",
       file_of("{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
               "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[4,6]}}",
               6),
       "hole"},
  };
  const TemporaryFolder folder;
  for (const Broken& broken : cases) {
    std::ofstream(folder / "t", std::ios::binary) << broken.bytes;
    try {
      const SafetensorsFile file(folder / "t");
      ADD_FAILURE() << "accepted: " << broken.what;
    } catch (const IoError& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find(folder / "t"), std::string::npos) << text;
      EXPECT_NE(text.find(broken.message), std::string::npos) << broken.what << ": " << text;
    }
  }
  std::ofstream(folder / "t", std::ios::binary) << file_of(good, 8);
  EXPECT_EQ(SafetensorsFile(folder / "t").entries().size(), 1u);
  EXPECT_THROW(SafetensorsFile(folder / "none"), IoError);
  EXPECT_THROW(SafetensorsFile(folder.path()), IoError);
}

}  // namespace
}  // namespace vitrine

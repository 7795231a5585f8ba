// Writing and strict reading of safetensors.
#include "checkpoint/safetensors.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "core/error.h"
#include "core/format.h"
#include "core/json.h"

namespace vitrine {

namespace {

// The reference implementation refuses longer headers.
constexpr uint64_t kLongestHeader = 100000000;

struct TypeWords {
  const char* text;
  uint64_t bits;
  int dtype;  // -1: not one of ours
};
constexpr TypeWords kTypes[] = {{"F32", 32, int(DType::kF32)},
                                {"BF16", 16, int(DType::kBF16)},
                                {"F16", 16, int(DType::kF16)},
                                {"F64", 64, int(DType::kF64)},
                                {"I32", 32, int(DType::kI32)},
                                {"U8", 8, int(DType::kU8)},
                                {"BOOL", 8, -1},
                                {"I8", 8, -1},
                                {"F8_E5M2", 8, -1},
                                {"F8_E4M3", 8, -1},
                                {"F8_E8M0", 8, -1},
                                {"I16", 16, -1},
                                {"U16", 16, -1},
                                {"U32", 32, -1},
                                {"I64", 64, -1},
                                {"U64", 64, -1},
                                {"C64", 64, -1},
                                {"F4", 4, -1}};

const TypeWords* words_of(const std::string& text) {
  for (const auto& words : kTypes) {
    if (text == words.text) return &words;
  }
  return nullptr;
}

const char* text_of(DType dtype) {
  for (const auto& words : kTypes) {
    if (words.dtype == static_cast<int>(dtype)) return words.text;
  }
  return "";
}

uint64_t little_endian(std::span<const std::byte> eight) {
  uint64_t value = 0;
  for (size_t i = 8; i-- > 0;) value = value << 8 | std::to_integer<uint64_t>(eight[i]);
  return value;
}

// False when the product of the dimensions and the element size overflows.
bool bytes_of(const std::vector<int64_t>& shape, uint64_t bits, uint64_t& bytes) {
  uint64_t product = 1;
  for (const int64_t dim : shape) {
    if (dim < 0 || __builtin_mul_overflow(product, static_cast<uint64_t>(dim), &product))
      return false;
  }
  if (__builtin_mul_overflow(product, bits, &product)) return false;
  bytes = product / 8;
  return product % 8 == 0;
}

}  // namespace

void SafetensorsWriter::add(const std::string& name,
                            DType dtype,
                            const std::vector<int64_t>& shape,
                            std::span<const std::byte> data) {
  if (name == "__metadata__" || !by_name_.emplace(name, items_.size()).second) {
    throw ConfigError("safetensors: the name \"" + name + "\" is taken; names must be unique");
  }
  uint64_t bytes = 0;
  if (!bytes_of(shape, 8 * dtype_bytes(dtype), bytes) || bytes != data.size()) {
    throw ShapeError("safetensors: \"" + name + "\": dtype and shape ask for " +
                     std::to_string(bytes) + " bytes, got " + std::to_string(data.size()));
  }
  items_.push_back({{name, text_of(dtype), true, dtype, shape, 0, bytes}, data});
}

SafetensorsWriter::Result SafetensorsWriter::write(const std::string& path) const {
  std::vector<size_t> order(items_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return dtype_bytes(items_[a].entry.dtype) > dtype_bytes(items_[b].entry.dtype);
  });
  Json header = Json::object();
  if (!metadata_.empty()) header["__metadata__"] = metadata_;
  uint64_t at = 0;
  Result result;
  for (const auto& item : items_) result.entries.push_back(item.entry);
  for (const size_t i : order) {
    SafetensorsEntry& entry = result.entries[i];
    header[entry.name] = {{"dtype", entry.dtype_text},
                          {"shape", entry.shape},
                          {"data_offsets", {at, at + entry.bytes}}};
    entry.offset = at;
    at += entry.bytes;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  for (auto& entry : result.entries) entry.offset += 8 + text.size();

  DurableFile file(path);
  std::byte length[8];
  for (size_t i = 0; i < 8; ++i) length[i] = static_cast<std::byte>(text.size() >> (8 * i) & 0xff);
  file.write(length);
  file.write(std::as_bytes(std::span(text)));
  for (const size_t i : order) file.write(items_[i].data);
  result.sha256 = file.finish();
  result.bytes = file.bytes();
  return result;
}

SafetensorsFile::SafetensorsFile(const std::string& path) : path_(path), file_(path) { parse(); }

void SafetensorsFile::parse() {
  const auto fail = [this](const std::string& what) {
    throw IoError(path_ + " is not a whole safetensors file: " + what);
  };
  const auto bytes = std::as_bytes(file_.bytes());
  if (bytes.size() < 8) fail("it has " + std::to_string(bytes.size()) + " bytes, a header needs 8");
  const uint64_t length = little_endian(bytes.first(8));
  if (length > kLongestHeader || length > bytes.size() - 8) {
    fail("its header claims " + std::to_string(length) + " bytes, the file has " +
         std::to_string(bytes.size()) + "; it was cut or is of another format");
  }
  const std::string text(reinterpret_cast<const char*>(bytes.data()) + 8, length);
  if (text.empty() || text[0] != '{') fail("its header is not a JSON object");
  const uint64_t start = 8 + length, size = bytes.size() - start;
  try {
    const Json header = parse_json(text, path_);
    for (const auto& [name, value] : header.items()) {
      if (name == "__metadata__") {
        metadata_ = value.get<std::map<std::string, std::string>>();
        continue;
      }
      SafetensorsEntry entry;
      entry.name = name;
      entry.dtype_text = value.at("dtype").get<std::string>();
      const TypeWords* words = words_of(entry.dtype_text);
      if (words == nullptr) fail("\"" + name + "\" has the unknown dtype " + entry.dtype_text);
      entry.readable = words->dtype >= 0;
      if (entry.readable) entry.dtype = static_cast<DType>(words->dtype);
      for (const Json& dim : value.at("shape")) {
        if (!dim.is_number_unsigned())
          fail("\"" + name + "\" has the shape " + value.at("shape").dump());
        entry.shape.push_back(dim.get<int64_t>());
      }
      const Json& range = value.at("data_offsets");
      if (!range.is_array() || range.size() != 2 || !range[0].is_number_unsigned() ||
          !range[1].is_number_unsigned()) {
        fail("\"" + name + "\" has the data_offsets " + range.dump());
      }
      const auto begin = range[0].get<uint64_t>(), end = range[1].get<uint64_t>();
      if (begin > end || end > size) {
        fail("\"" + name + "\" lies at bytes " + range.dump() + " of " + std::to_string(size) +
             "; the file was cut");
      }
      uint64_t expected = 0;
      if (!bytes_of(entry.shape, words->bits, expected) || expected != end - begin) {
        fail("\"" + name + "\" has " + std::to_string(end - begin) +
             " bytes, its dtype and shape " + value.at("shape").dump() + " ask for " +
             std::to_string(expected));
      }
      entry.offset = start + begin;
      entry.bytes = end - begin;
      entries_.push_back(std::move(entry));
    }
  } catch (const ConfigError& error) {
    fail(error.what());
  } catch (const Json::exception& error) {
    fail(error.what());
  }
  std::sort(entries_.begin(), entries_.end(), [](const auto& a, const auto& b) {
    return a.offset != b.offset ? a.offset < b.offset : a.bytes < b.bytes;
  });
  uint64_t covered = start;
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].offset != covered) {
      fail("\"" + entries_[i].name + "\" " +
           (entries_[i].offset < covered ? "overlaps" : "leaves a hole after") +
           " the tensor before it");
    }
    covered += entries_[i].bytes;
    by_name_[entries_[i].name] = i;
  }
  if (covered != bytes.size()) {
    fail(std::to_string(bytes.size() - covered) + " bytes after the last tensor belong to none");
  }
}

bool SafetensorsFile::has(const std::string& name) const { return by_name_.contains(name); }

const SafetensorsEntry& SafetensorsFile::find(const std::string& name) const {
  const auto it = by_name_.find(name);
  if (it != by_name_.end()) return entries_[it->second];
  std::vector<std::string> names;
  for (const auto& entry : entries_) names.push_back(entry.name);
  const std::string near = nearest_name(name, names);
  throw IoError(path_ + " holds no tensor \"" + name + "\"" +
                (near.empty() ? "" : "; did you mean \"" + near + "\"?"));
}

}  // namespace vitrine

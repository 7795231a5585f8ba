// The safetensors file format: an 8-byte little-endian header length, a JSON header, the tensors'
// bytes. Source: the format's description in huggingface/safetensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/durable_file.h"
#include "core/dtype.h"

namespace vitrine {

struct SafetensorsEntry {
  std::string name;
  std::string dtype_text;  // "F32", "BF16", "I64", "F8_E4M3", ... as in the file
  bool readable = false;  // whether DType has this type; the others can be listed but not converted
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  uint64_t offset = 0;  // of the first byte, from the start of the file
  uint64_t bytes = 0;
};

// Tensors to be written; only views are kept, the memory must live until write() is through.
class SafetensorsWriter {
 public:
  // Throws ShapeError when the bytes are not what dtype and shape ask for, ConfigError when the
  // name is taken or is "__metadata__".
  void add(const std::string& name,
           DType dtype,
           const std::vector<int64_t>& shape,
           std::span<const std::byte> data);
  void set_metadata(const std::string& key, const std::string& value) { metadata_[key] = value; }

  struct Result {
    std::string sha256;
    uint64_t bytes;
    std::vector<SafetensorsEntry> entries;  // in the order of add(), with their offsets
  };
  // Larger element types first, so that every tensor is aligned to its elements. The header is
  // padded with blanks to 8 bytes. On the disk when this returns; throws IoError.
  Result write(const std::string& path) const;

 private:
  struct Item {
    SafetensorsEntry entry;
    std::span<const std::byte> data;
  };
  std::vector<Item> items_;
  std::map<std::string, size_t> by_name_;
  std::map<std::string, std::string> metadata_;
};

// Memory-mapped. The constructor checks everything a reader relies on: header length, JSON, known
// dtypes, shapes against byte ranges, ranges inside the file, without overlaps or holes. Throws
// IoError.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);

  const std::vector<SafetensorsEntry>& entries() const { return entries_; }  // by offset
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  // Throws IoError with the nearest name when there is none.
  const SafetensorsEntry& find(const std::string& name) const;
  bool has(const std::string& name) const;
  std::span<const std::byte> data(const SafetensorsEntry& entry) const {
    return std::as_bytes(file_.bytes()).subspan(entry.offset, entry.bytes);
  }
  const std::string& path() const { return path_; }

 private:
  void parse();

  std::string path_;
  MappedFile file_;
  std::vector<SafetensorsEntry> entries_;
  std::map<std::string, size_t> by_name_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace vitrine

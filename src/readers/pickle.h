// Python's pickles of plain data, protocols 2 to 5, read without ever running what they name.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "timeline/timeline.h"

namespace vitrine {

// What a pickle's machine holds: small, and shared containers are references to one object.
struct PickleValue {
  enum class Type : uint8_t {
    kNone,
    kBoolean,
    kInteger,
    kLargeInteger,  // beyond 64 bits: its value is not kept
    kFloat,
    kText,
    kBytes,  // length only
    kList,   // tuples and sets too
    kDict,
    kMark
  } type = Type::kNone;
  union {
    int64_t integer = 0;  // also booleans; unsigned 64-bit values wrap
    double real;
    StringId text;
    uint32_t object;
  };
};

// A client turns a dict into a record of its own as soon as its items are known, so that nothing
// more than the record's number is kept of it: a file of gigabytes needs no tree of its own.
struct PickleRecord {
  uint8_t kind = 0;  // the client's, 1 ...
  uint32_t index = 0;
};

class Unpickler;
class PickleClient {
 public:
  virtual ~PickleClient() = default;
  // `items` are keys and values in turn. No record: the dict is kept as it is.
  virtual std::optional<PickleRecord> dict(Unpickler& pickle,
                                           std::span<const PickleValue> items) = 0;
};

// One pass over a plain or gzipped file by blocks. No recursion; memory is at most a small multiple
// of the uncompressed bytes whatever they say, and of objects that the client folds 8 bytes stay
// (and 16 for its place in the memo).
class Unpickler {
 public:
  // Throws IoError that names the file: missing, empty, cut, damaged; an operation that would run
  // code (GLOBAL, REDUCE, ...), an unknown one, or one that does not fit, each with the offset.
  Unpickler(const std::string& path, PickleClient& client);
  ~Unpickler();
  Unpickler(const Unpickler&) = delete;
  Unpickler& operator=(const Unpickler&) = delete;

  // The value at STOP.
  PickleValue load();

  // Texts, shared by content.
  StringPool& strings() { return strings_; }
  // Of a list or unfolded dict (keys and values in turn); empty for others.
  std::span<const PickleValue> items(const PickleValue& value) const;
  std::optional<PickleRecord> record(const PickleValue& value) const;
  // Replaces a list's content by a record, also for all other references to it.
  void fold(const PickleValue& list, PickleRecord record);

 private:
  using Type = PickleValue::Type;
  // The containers by number: empty, the index of a store, or a client's record.
  struct Object {
    uint32_t at = 0;
    uint8_t state = kEmpty;  // else kStored, else kRecord + the client's kind
  };
  static constexpr uint8_t kEmpty = 0, kStored = 1, kRecord = 1;

  void step(uint8_t opcode);
  bool step_scalar(uint8_t opcode);
  bool step_container(uint8_t opcode);
  bool step_memo(uint8_t opcode);

  const uint8_t* need(size_t bytes);
  uint64_t little_endian(size_t bytes);
  void push(PickleValue value);
  PickleValue pop();
  void push_integer(int64_t value);
  void push_text(uint64_t size);
  void skip_bytes(uint64_t size);
  void push_long(uint64_t size);
  size_t pop_mark();  // index of the first value above it
  PickleValue new_object(Type type);
  std::vector<PickleValue>& store(const PickleValue& container);
  void append(PickleValue container, size_t first);
  void put(uint64_t index);
  void get(uint64_t index);
  [[noreturn]] void fail(const std::string& what) const;

  std::string path_;
  PickleClient& client_;
  void* file_ = nullptr;  // gzFile
  std::vector<uint8_t> buffer_;
  size_t begin_ = 0, end_ = 0;
  uint64_t offset_ = 0;     // of buffer_[begin_] in the uncompressed file
  uint64_t operation_ = 0;  // offset of the current operation
  bool stopped_ = false;

  StringPool strings_;
  std::vector<PickleValue> stack_;
  std::vector<size_t> marks_;
  std::vector<PickleValue> memo_;
  std::unordered_map<uint64_t, PickleValue> sparse_memo_;  // numbers that skip some
  std::vector<Object> objects_;
  std::vector<std::vector<PickleValue>> stores_;
  std::vector<uint32_t> free_stores_;
};

}  // namespace vitrine

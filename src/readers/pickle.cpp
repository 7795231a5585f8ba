// The pickle machine: a stack, marks, a memo; and no way to call anything.
#include "readers/pickle.h"

#include <zlib.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "core/error.h"
#include "core/format.h"
#include "readers/pickle_opcodes.h"

namespace vitrine {

namespace {

constexpr size_t kBlock = size_t{1} << 20;
constexpr size_t kMostStacked = size_t{1} << 22;  // picklers write batches of 1000
constexpr uint64_t kLongestText = uint64_t{1} << 28;

}  // namespace

Unpickler::Unpickler(const std::string& path, PickleClient& client) : path_(path), client_(client) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) throw IoError(path + " is a folder, not a file");
  file_ = gzopen(path.c_str(), "rb");
  if (file_ == nullptr) throw IoError("cannot read " + path + ": " + std::strerror(errno));
  gzbuffer(static_cast<gzFile>(file_), 256 << 10);
  buffer_.resize(kBlock);
}

Unpickler::~Unpickler() { gzclose(static_cast<gzFile>(file_)); }

void Unpickler::fail(const std::string& what) const {
  throw IoError(format("%s at byte %llu of the pickle: %s",
                       path_.c_str(),
                       static_cast<unsigned long long>(operation_),
                       what.c_str()));
}

// The next `bytes` bytes, which are taken; they stay until the next call.
const uint8_t* Unpickler::need(size_t bytes) {
  if (end_ - begin_ < bytes) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
    while (end_ < bytes) {
      // Grown only by what really comes: a length in the file is no reason to allocate.
      if (buffer_.size() < end_ + kBlock) buffer_.resize(end_ + kBlock);
      const int got = gzread(static_cast<gzFile>(file_),
                             buffer_.data() + end_,
                             static_cast<unsigned>(buffer_.size() - end_));
      if (got > 0) {
        end_ += static_cast<size_t>(got);
        continue;
      }
      if (got == 0 && offset_ == 0 && end_ == 0) throw IoError(path_ + " is empty");
      int code = Z_OK;
      const char* message = gzerror(static_cast<gzFile>(file_), &code);
      if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR) {
        fail(std::string("the file is damaged: ") +
             (code == Z_ERRNO ? std::strerror(errno) : message));
      }
      fail(
          format("the file is cut short: it ends after %llu bytes, before the pickle's STOP; was "
                 "the writer interrupted, or the disk full?",
                 static_cast<unsigned long long>(offset_ + end_)));
    }
  }
  const uint8_t* data = buffer_.data() + begin_;
  begin_ += bytes;
  offset_ += bytes;
  return data;
}

uint64_t Unpickler::little_endian(size_t bytes) {
  const uint8_t* data = need(bytes);
  uint64_t value = 0;
  for (size_t i = 0; i < bytes; ++i) value |= uint64_t{data[i]} << (8 * i);
  return value;
}

PickleValue Unpickler::load() {
  if (*need(1) != pickle_opcode::kProto) {
    throw IoError(path_ + " is no pickle of protocol 2 to 5: its first byte is not 0x80");
  }
  const uint8_t version = *need(1);
  if (version < 2 || version > 5) {
    throw IoError(
        format("%s is a pickle of protocol %d; protocols 2 to 5 are read", path_.c_str(), version));
  }
  while (!stopped_) {
    operation_ = offset_;
    step(*need(1));
  }
  if (stack_.size() != 1 || !marks_.empty()) {
    fail(format("STOP with %zu values on the stack where there should be one", stack_.size()));
  }
  return stack_.back();
}

void Unpickler::step(uint8_t opcode) {
  if (step_scalar(opcode) || step_memo(opcode) || step_container(opcode)) return;
  if (const char* name = code_running_opcode(opcode)) {
    fail(
        format("operation %s would run code of the file's choosing; it is refused. An allocator "
               "snapshot is plain data: was this file written by torch.cuda.memory._dump_snapshot?",
               name));
  }
  fail(format("operation 0x%02x is none of a pickle of plain data: damaged, or another format",
              opcode));
}

bool Unpickler::step_scalar(uint8_t opcode) {
  using namespace pickle_opcode;
  switch (opcode) {
    case kProto:
      need(1);
      return true;
    case kFrame:
      need(8);
      return true;
    case kNone:
      push({});
      return true;
    case kNewTrue:
    case kNewFalse: {
      PickleValue value;
      value.type = Type::kBoolean;
      value.integer = opcode == kNewTrue;
      push(value);
      return true;
    }
    case kBinInt:
      push_integer(static_cast<int32_t>(little_endian(4)));
      return true;
    case kBinInt1:
      push_integer(static_cast<int64_t>(little_endian(1)));
      return true;
    case kBinInt2:
      push_integer(static_cast<int64_t>(little_endian(2)));
      return true;
    case kLong1:
      push_long(little_endian(1));
      return true;
    case kLong4:
      push_long(little_endian(4));
      return true;
    case kBinFloat: {
      const uint8_t* data = need(8);
      uint64_t bits = 0;
      for (size_t i = 0; i < 8; ++i) bits = bits << 8 | data[i];
      PickleValue value;
      value.type = Type::kFloat;
      value.real = std::bit_cast<double>(bits);
      push(value);
      return true;
    }
    case kShortBinString:
    case kShortBinUnicode:
      push_text(little_endian(1));
      return true;
    case kBinString:
    case kBinUnicode:
      push_text(little_endian(4));
      return true;
    case kBinUnicode8:
      push_text(little_endian(8));
      return true;
    case kShortBinBytes:
      skip_bytes(little_endian(1));
      return true;
    case kBinBytes:
      skip_bytes(little_endian(4));
      return true;
    case kBinBytes8:
    case kByteArray8:
      skip_bytes(little_endian(8));
      return true;
    default:
      return false;
  }
}

bool Unpickler::step_memo(uint8_t opcode) {
  using namespace pickle_opcode;
  switch (opcode) {
    case kMemoize:
      put(memo_.size() + sparse_memo_.size());
      return true;
    case kBinPut:
      put(little_endian(1));
      return true;
    case kLongBinPut:
      put(little_endian(4));
      return true;
    case kBinGet:
      get(little_endian(1));
      return true;
    case kLongBinGet:
      get(little_endian(4));
      return true;
    default:
      return false;
  }
}

bool Unpickler::step_container(uint8_t opcode) {
  using namespace pickle_opcode;
  const auto gather = [&](Type type, size_t first) {
    const PickleValue container = new_object(type);
    append(container, first);
    push(container);
  };
  switch (opcode) {
    case kStop:
      stopped_ = true;
      return true;
    case kMark:
      if (marks_.size() >= kMostStacked) fail("too many marks");
      marks_.push_back(stack_.size());
      return true;
    case kPop:
      pop();
      return true;
    case kPopMark:
      stack_.resize(pop_mark());
      return true;
    case kDup: {
      const PickleValue value = pop();
      push(value);
      push(value);
      return true;
    }
    case kEmptyTuple:
    case kEmptyList:
    case kEmptySet:
      push(new_object(Type::kList));
      return true;
    case kEmptyDict:
      push(new_object(Type::kDict));
      return true;
    case kTuple1:
    case kTuple2:
    case kTuple3: {
      const size_t count = static_cast<size_t>(opcode - kTuple1) + 1;
      const size_t floor = marks_.empty() ? 0 : marks_.back();
      if (stack_.size() < floor + count) fail("a tuple of more values than there are");
      gather(Type::kList, stack_.size() - count);
      return true;
    }
    case kTuple:
    case kList:
    case kFrozenSet:
      gather(Type::kList, pop_mark());
      return true;
    case kDict:
      gather(Type::kDict, pop_mark());
      return true;
    case kAppend:
    case kSetItem: {
      const size_t count = opcode == kAppend ? 1 : 2;
      const size_t floor = marks_.empty() ? 0 : marks_.back();
      if (stack_.size() < floor + count + 1) fail("an item without a container");
      append(stack_[stack_.size() - count - 1], stack_.size() - count);
      return true;
    }
    case kAppends:
    case kAddItems:
    case kSetItems: {
      const size_t first = pop_mark();
      if (first == 0) fail("items without a container");
      append(stack_[first - 1], first);
      return true;
    }
    default:
      return false;
  }
}

void Unpickler::push(PickleValue value) {
  if (stack_.size() >= kMostStacked) fail("more values wait on the stack than any pickler leaves");
  stack_.push_back(value);
}

PickleValue Unpickler::pop() {
  if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) fail("a value is missing");
  const PickleValue value = stack_.back();
  stack_.pop_back();
  return value;
}

size_t Unpickler::pop_mark() {
  if (marks_.empty()) fail("a mark is missing");
  const size_t first = marks_.back();
  marks_.pop_back();
  return first;
}

void Unpickler::push_integer(int64_t number) {
  PickleValue value;
  value.type = Type::kInteger;
  value.integer = number;
  push(value);
}

void Unpickler::push_long(uint64_t size) {
  if (size <= 8) {
    uint64_t bits = little_endian(static_cast<size_t>(size));
    const bool negative = size > 0 && (bits >> (8 * size - 1) & 1) != 0;
    if (negative && size < 8) bits |= ~uint64_t{0} << (8 * size);
    return push_integer(static_cast<int64_t>(bits));
  }
  // Unsigned 64-bit values take a ninth byte.
  if (size == 9) {
    const uint8_t* data = need(9);
    if (data[8] == 0) {
      uint64_t bits = 0;
      for (size_t i = 0; i < 8; ++i) bits |= uint64_t{data[i]} << (8 * i);
      return push_integer(static_cast<int64_t>(bits));
    }
    size = 0;
  }
  skip_bytes(size);
  stack_.back().type = Type::kLargeInteger;
}

void Unpickler::push_text(uint64_t size) {
  if (size > kLongestText) fail("a text of over 256 MiB");
  const uint8_t* data = need(static_cast<size_t>(size));
  PickleValue value;
  value.type = Type::kText;
  value.text =
      strings_.intern(std::string(reinterpret_cast<const char*>(data), static_cast<size_t>(size)));
  push(value);
}

void Unpickler::skip_bytes(uint64_t size) {
  PickleValue value;
  value.type = Type::kBytes;
  value.integer = static_cast<int64_t>(size);
  for (; size > 0; size -= std::min<uint64_t>(size, kBlock)) {
    need(static_cast<size_t>(std::min<uint64_t>(size, kBlock)));
  }
  push(value);
}

PickleValue Unpickler::new_object(Type type) {
  if (objects_.size() >= UINT32_MAX) fail("over four thousand million objects");
  PickleValue value;
  value.type = type;
  value.object = static_cast<uint32_t>(objects_.size());
  objects_.emplace_back();
  return value;
}

std::vector<PickleValue>& Unpickler::store(const PickleValue& container) {
  Object& object = objects_[container.object];
  if (object.state == kEmpty) {
    object.state = kStored;
    if (free_stores_.empty()) {
      object.at = static_cast<uint32_t>(stores_.size());
      stores_.emplace_back();
    } else {
      object.at = free_stores_.back();
      free_stores_.pop_back();
    }
  }
  return stores_[object.at];
}

// Moves the values from `first` to the top of the stack into the container.
void Unpickler::append(PickleValue container, size_t first) {
  if (container.type != Type::kList && container.type != Type::kDict) {
    fail("items for something that holds none");
  }
  const Object object = objects_[container.object];
  if (object.state > kStored) fail("items for an object that was complete");
  const std::span<const PickleValue> items(stack_.data() + first, stack_.size() - first);
  if (container.type == Type::kDict) {
    if (items.size() % 2 != 0) fail("a key without a value");
    if (object.state == kEmpty && !items.empty()) {
      const auto record = client_.dict(*this, items);
      if (record) {
        objects_[container.object] = {record->index, static_cast<uint8_t>(kRecord + record->kind)};
        stack_.resize(first);
        return;
      }
    }
  }
  if (!items.empty()) {
    std::vector<PickleValue>& values = store(container);
    values.insert(values.end(), items.begin(), items.end());
  }
  stack_.resize(first);
}

void Unpickler::put(uint64_t index) {
  const PickleValue value = pop();
  push(value);
  if (index < memo_.size()) {
    memo_[static_cast<size_t>(index)] = value;
  } else if (index == memo_.size() && sparse_memo_.empty()) {
    memo_.push_back(value);
  } else {
    sparse_memo_[index] = value;
  }
}

void Unpickler::get(uint64_t index) {
  if (index < memo_.size()) return push(memo_[static_cast<size_t>(index)]);
  const auto found = sparse_memo_.find(index);
  if (found == sparse_memo_.end()) {
    fail(format("object %llu of the memo is not there", static_cast<unsigned long long>(index)));
  }
  push(found->second);
}

std::span<const PickleValue> Unpickler::items(const PickleValue& value) const {
  if (value.type != Type::kList && value.type != Type::kDict) return {};
  const Object& object = objects_[value.object];
  if (object.state != kStored) return {};
  return stores_[object.at];
}

std::optional<PickleRecord> Unpickler::record(const PickleValue& value) const {
  if (value.type != Type::kList && value.type != Type::kDict) return std::nullopt;
  const Object& object = objects_[value.object];
  if (object.state <= kStored) return std::nullopt;
  return PickleRecord{static_cast<uint8_t>(object.state - kRecord), object.at};
}

void Unpickler::fold(const PickleValue& list, PickleRecord record) {
  Object& object = objects_[list.object];
  if (object.state == kStored) {
    stores_[object.at].clear();
    if (stores_[object.at].capacity() > 4096) stores_[object.at].shrink_to_fit();
    free_stores_.push_back(object.at);
  }
  object = {record.index, static_cast<uint8_t>(kRecord + record.kind)};
}

}  // namespace vitrine

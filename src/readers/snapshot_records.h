// The parts of an allocator snapshot, picked up while the pickle is read.
#pragma once

#include <map>
#include <string_view>
#include <tuple>
#include <unordered_map>

#include "readers/pickle.h"
#include "timeline/allocator_snapshot.h"

namespace vitrine {

class SnapshotRecords : public PickleClient {
 public:
  enum Kind : uint8_t { kFrame = 1, kStack, kBlock, kEvent, kSegment, kAnnotation, kBlocks };

  std::optional<PickleRecord> dict(Unpickler& pickle, std::span<const PickleValue> items) override;

  std::vector<AllocatorFrame> frames;
  std::vector<std::vector<uint32_t>> stacks;
  std::vector<AllocatorBlock> blocks;
  std::vector<AllocatorEvent> events;
  std::vector<AllocatorSegment> segments;  // with their blocks
  std::vector<AllocatorAnnotation> annotations;
  int64_t impossible_sizes = 0;  // taken as 0

 private:
  // Keys by the number of their text in the pickle's pool, so that no text is compared.
  enum class Key : uint8_t {
    kOther,
    kAction,
    kAddr,
    kAddress,
    kActiveSize,
    kAllocatedSize,
    kBlocks,
    kDevice,
    kDeviceFree,
    kFilename,
    kFrames,
    kIsExpandable,
    kLine,
    kName,
    kRequestedSize,
    kSegmentType,
    kSize,
    kStage,
    kState,
    kStream,
    kTimeUs,
    kTotalSize,
    kCount
  };
  static Key key_of_text(std::string_view text);
  Key key_of(Unpickler& pickle, const PickleValue& key);

  PickleRecord frame();
  PickleRecord block(Unpickler& pickle);
  PickleRecord event(Unpickler& pickle);
  PickleRecord segment(Unpickler& pickle);
  PickleRecord annotation(Unpickler& pickle);
  int32_t stack(Unpickler& pickle);

  const PickleValue& at(Key key) const { return values_[static_cast<size_t>(key)]; }
  bool has(Key key) const { return present_ >> static_cast<unsigned>(key) & 1; }
  int64_t integer(Key key, int64_t missing = 0) const;
  int64_t size(Key key, int64_t missing = 0);
  StringId text(Key key) const;

  std::vector<Key> keys_;  // by StringId
  // Of the dict at hand.
  PickleValue values_[static_cast<size_t>(Key::kCount)];
  uint32_t present_ = 0;

  std::map<std::tuple<StringId, StringId, int32_t>, uint32_t> frame_ids_;
  std::unordered_multimap<uint64_t, uint32_t> stack_ids_;  // by hash of their frames
};

}  // namespace vitrine

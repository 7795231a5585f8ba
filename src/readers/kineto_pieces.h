// The list of events, cut into pieces that several threads parse while the text is still being
// read.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "readers/kineto.h"
#include "readers/kineto_events.h"
#include "readers/kineto_join.h"
#include "readers/text_source.h"

namespace vitrine {

// Text followed by json_scan::kPadding zeros.
class PaddedText {
 public:
  std::string_view view() const { return {bytes_.data(), size_}; }
  size_t size() const { return size_; }
  void assign(std::string_view text);
  // Appends up to `most` bytes of the source; false at its end.
  bool append(TextSource& source, size_t most);
  void append(std::string_view text);
  void erase_front(size_t count);
  // Keeps the memory.
  void truncate(size_t size);

 private:
  void resize(size_t size);
  std::vector<char> bytes_ = std::vector<char>(64);
  size_t size_ = 0;
};

// The pieces are cut where an event seems to begin; should one turn out to be cut inside an event,
// it is parsed again together with the next, so the result is that of one pass over the whole.
class KinetoPieces {
 public:
  KinetoPieces(TextSource& source, KinetoJoiner& joiner, const KinetoOptions& options);
  ~KinetoPieces();
  KinetoPieces(const KinetoPieces&) = delete;
  KinetoPieces& operator=(const KinetoPieces&) = delete;

  // `rest` holds what was read already, from the first event on, which is byte `offset` of the
  // whole; afterwards it holds what follows the list. Returns the byte at which the rest begins.
  uint64_t run(PaddedText& rest, uint64_t offset);

  // Whether the text ended before the list did, and where the last whole event ended.
  bool cut() const { return cut_; }
  uint64_t cut_at() const { return cut_at_; }
  static size_t parsers(const KinetoOptions& options);

 private:
  struct Slot {
    PaddedText text;
    uint64_t offset = 0;
    size_t parser = 0;
    bool parsed = false;
    KinetoEvents events;
  };

  void work(size_t parser);
  bool fill(Slot& slot, PaddedText& rest);
  void settle(Slot& slot);
  void parse_pending(bool at_end);
  void wait_for(Slot& slot);
  void gather_rest(PaddedText& rest, uint64_t settled);

  TextSource& source_;
  KinetoJoiner& joiner_;
  const size_t chunk_bytes_;
  std::vector<KinetoEventParser> parsers_;  // the first belongs to the calling thread
  std::vector<Slot> slots_;                 // a ring, by number of the piece

  std::mutex mutex_;
  std::condition_variable filled_, parsed_;
  uint64_t given_ = 0, begun_ = 0;  // pieces filled, and taken by a worker
  bool stop_ = false;
  std::exception_ptr error_;
  std::vector<std::thread> workers_;

  // An event that began in a piece and did not end there, with all that followed.
  PaddedText pending_;
  uint64_t pending_offset_ = 0;
  KinetoEvents events_;
  uint64_t next_offset_ = 0;
  bool source_ended_ = false, hinted_ = false;
  bool list_ended_ = false, cut_ = false;
  uint64_t cut_at_ = 0, rest_at_ = 0;
};

}  // namespace vitrine

// A ring of pieces: the calling thread fills them and joins what the workers made of them.
#include "readers/kineto_pieces.h"

#include <algorithm>
#include <cstring>

#include "readers/json_scan.h"
#include "readers/kineto.h"

namespace vitrine {
namespace {

constexpr size_t kSlots = 8;
constexpr size_t kLargestChunk = size_t{64} << 20;
// An event that does not end within so much text is taken for damage.
constexpr size_t kLongestEvent = size_t{4} << 20;
// The expectation is extrapolated, from what the first piece holds and how well it compressed.
constexpr double kMostReserved = 4 << 20;

// Where the last event seems to begin, or the size where none does.
size_t last_event(std::string_view text) {
  for (size_t i = text.size(); i-- > 1;) {
    if (text[i] == '{' && event_begins(text.data(), text.data() + i)) return i;
  }
  return text.size();
}

}  // namespace

void PaddedText::resize(size_t size) {
  const size_t wanted = size + json_scan::kPadding;
  if (bytes_.size() < wanted) bytes_.resize(std::max(wanted, bytes_.size() + bytes_.size() / 2));
  size_ = size;
  std::memset(bytes_.data() + size, 0, json_scan::kPadding);
}
void PaddedText::assign(std::string_view text) {
  size_ = 0;
  append(text);
}
void PaddedText::append(std::string_view text) {
  const size_t before = size_;
  resize(before + text.size());
  if (!text.empty()) std::memcpy(bytes_.data() + before, text.data(), text.size());
}
bool PaddedText::append(TextSource& source, size_t most) {
  const size_t before = size_;
  resize(before + most);
  const size_t got = source.read(bytes_.data() + before, most);
  resize(before + got);
  return got == most;
}
void PaddedText::erase_front(size_t count) {
  std::memmove(bytes_.data(), bytes_.data() + count, size_ - count);
  resize(size_ - count);
}
void PaddedText::truncate(size_t size) { resize(size); }

size_t KinetoPieces::parsers(const KinetoOptions& options) {
  return 1 + (options.threads > 1 ? static_cast<size_t>(std::min(options.threads, 6)) : 0);
}

KinetoPieces::KinetoPieces(TextSource& source, KinetoJoiner& joiner, const KinetoOptions& options)
    : source_(source),
      joiner_(joiner),
      chunk_bytes_(std::clamp<size_t>(options.chunk_bytes, 16, kLargestChunk)) {
  const size_t count = parsers(options);
  for (size_t i = 0; i < count; ++i) parsers_.emplace_back(options.python_functions);
  slots_.resize(count == 1 ? 1 : kSlots);
}

KinetoPieces::~KinetoPieces() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  filled_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void KinetoPieces::work(size_t parser) {
  for (;;) {
    Slot* slot = nullptr;
    {
      std::unique_lock lock(mutex_);
      filled_.wait(lock, [&] { return stop_ || begun_ < given_; });
      if (stop_) return;
      slot = &slots_[begun_++ % slots_.size()];
    }
    std::exception_ptr error;
    try {
      slot->parser = parser;
      parsers_[parser].parse(slot->text.view(), slot->offset, false, slot->events);
    } catch (...) {  // out of memory; the calling thread throws it on
      error = std::current_exception();
    }
    {
      const std::lock_guard lock(mutex_);
      slot->parsed = true;
      if (error) error_ = error;
    }
    parsed_.notify_one();
  }
}

// The next piece: what was left over, and as much of the source as makes a piece; what follows the
// beginning of the last event is left over in turn. False when there is nothing more.
bool KinetoPieces::fill(Slot& slot, PaddedText& rest) {
  slot.text.assign(rest.view());
  while (slot.text.size() < chunk_bytes_ && !source_ended_) {
    source_ended_ = !slot.text.append(source_, chunk_bytes_ - slot.text.size());
  }
  rest.truncate(0);
  slot.offset = next_offset_;
  slot.parsed = false;
  if (!source_ended_) {
    const size_t cut = last_event(slot.text.view());
    rest.assign(slot.text.view().substr(cut));
    slot.text.truncate(cut);
  }
  next_offset_ += slot.text.size();
  return slot.text.size() > 0;
}

uint64_t KinetoPieces::run(PaddedText& rest, uint64_t offset) {
  next_offset_ = cut_at_ = offset;
  uint64_t settled = 0;
  bool more = true;
  while (!list_ended_ && (more || settled < given_)) {
    if (more && given_ - settled < slots_.size()) {
      Slot& slot = slots_[given_ % slots_.size()];
      more = fill(slot, rest);
      if (!more) continue;
      if (given_ == 0 && !source_ended_) {
        for (size_t i = 1; i < parsers_.size(); ++i) workers_.emplace_back([this, i] { work(i); });
      }
      {
        const std::lock_guard lock(mutex_);
        ++given_;
      }
      if (!workers_.empty()) filled_.notify_one();
      if (given_ - settled < slots_.size() && !workers_.empty()) {
        const std::lock_guard lock(mutex_);
        if (!slots_[settled % slots_.size()].parsed) continue;
      }
    }
    settle(slots_[settled % slots_.size()]);
    ++settled;
  }
  if (!list_ended_) {
    parse_pending(true);
    cut_ = !list_ended_;
  }
  gather_rest(rest, settled);
  return rest_at_;
}

void KinetoPieces::wait_for(Slot& slot) {
  if (workers_.empty()) {
    slot.parser = 0;
    parsers_[0].parse(slot.text.view(), slot.offset, false, slot.events);
    return;
  }
  std::unique_lock lock(mutex_);
  parsed_.wait(lock, [&] { return slot.parsed; });
  if (error_) std::rethrow_exception(error_);
}

// Takes over what became of the next piece in the order of the file.
void KinetoPieces::settle(Slot& slot) {
  wait_for(slot);
  joiner_.learn(slot.parser, slot.events);
  if (pending_.size() > 0) {  // this piece begins inside an event
    pending_.append(slot.text.view());
    parse_pending(false);
    if (list_ended_) rest_at_ = pending_offset_;
    return;
  }
  joiner_.add(slot.parser, slot.events);
  if (!hinted_) {
    hinted_ = true;
    const double each = static_cast<double>(slot.events.spans.size()) /
                        static_cast<double>(std::max<size_t>(1, slot.text.size()));
    const double expected =
        1.05 * each * static_cast<double>(slot.text.size() + source_.size_hint());
    joiner_.reserve(static_cast<size_t>(std::min(expected, kMostReserved)));
  }
  const std::string_view text = slot.text.view();
  if (slot.events.list_end != KinetoEvents::kNone) {
    list_ended_ = true;
    rest_at_ = slot.offset + slot.events.list_end;
    pending_.assign(text.substr(slot.events.list_end));
    pending_offset_ = rest_at_;
  } else if (slot.events.unfinished != KinetoEvents::kNone) {
    pending_.assign(text.substr(slot.events.unfinished));
    pending_offset_ = slot.offset + slot.events.unfinished;
    cut_at_ = pending_offset_;
  } else {
    cut_at_ = slot.offset + text.size();
  }
}

// Parses what is pending in the calling thread; what still does not end stays pending. At the end
// of the text an event that does not end is damage or the place of the cut: what follows it tells.
void KinetoPieces::parse_pending(bool at_end) {
  bool give_up = at_end || pending_.size() > kLongestEvent;
  while (pending_.size() > 0 && !list_ended_) {
    parsers_[0].parse(pending_.view(), pending_offset_, give_up, events_);
    joiner_.learn(0, events_);
    const bool ended = events_.list_end != KinetoEvents::kNone;
    const bool unfinished = events_.unfinished != KinetoEvents::kNone;
    const bool nothing_follows = events_.spans.empty() && events_.allocations.empty() &&
                                 events_.counters.empty() && events_.labels.empty();
    if (at_end && !ended && !unfinished && nothing_follows) {
      cut_at_ = pending_offset_;
      pending_.truncate(0);
      return;  // the cut is told of by itself, not as damage
    }
    joiner_.add(0, events_);
    const size_t used = ended        ? events_.list_end
                        : unfinished ? events_.unfinished
                                     : pending_.size();
    pending_offset_ += used;
    cut_at_ = pending_offset_;
    pending_.erase_front(used);
    list_ended_ = ended;
    if (!at_end) return;
  }
}

// Gathers what follows the list: of the last piece, of those filled in vain, and what is left over.
void KinetoPieces::gather_rest(PaddedText& rest, uint64_t settled) {
  PaddedText tail;
  tail.assign(pending_.view());
  for (; settled < given_; ++settled) {
    Slot& slot = slots_[settled % slots_.size()];
    if (!workers_.empty()) wait_for(slot);
    tail.append(slot.text.view());
  }
  tail.append(rest.view());
  rest = std::move(tail);
  if (!list_ended_) rest_at_ = cut_at_;
}

}  // namespace vitrine

// gzip members one after another, through ISA-L or zlib.
#include "readers/gzip_text.h"

#include <algorithm>
#include <vector>

#ifdef VITRINE_HAVE_ISAL
#include <isa-l/igzip_lib.h>
#else
#include <zlib.h>
#endif

#include "core/format.h"

namespace vitrine {
namespace {

enum class Progress : uint8_t { kGoesOn, kMemberEnds, kDamaged };

#ifdef VITRINE_HAVE_ISAL
class Inflater {
 public:
  Inflater() : state_(std::make_unique<inflate_state>()) {
    isal_inflate_init(state_.get()), begin();
  }
  void begin() {
    isal_inflate_reset(state_.get());
    state_->crc_flag = ISAL_GZIP;
  }
  // Moves `from` and `into` on.
  Progress run(const unsigned char*& from, size_t& from_size, char*& into, size_t& into_size) {
    state_->next_in = const_cast<unsigned char*>(from);  // only read from
    state_->avail_in = static_cast<uint32_t>(from_size);
    state_->next_out = reinterpret_cast<unsigned char*>(into);
    state_->avail_out = static_cast<uint32_t>(into_size);
    const int code = isal_inflate(state_.get());
    from = state_->next_in, from_size = state_->avail_in;
    into += into_size - state_->avail_out, into_size = state_->avail_out;
    if (code != ISAL_DECOMP_OK && code != ISAL_END_INPUT) return Progress::kDamaged;
    return state_->block_state == ISAL_BLOCK_FINISH ? Progress::kMemberEnds : Progress::kGoesOn;
  }

 private:
  std::unique_ptr<inflate_state> state_;
};
#else
class Inflater {
 public:
  Inflater() { inflateInit2(&stream_, 15 + 16); }
  ~Inflater() { inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  void begin() { inflateReset(&stream_); }
  Progress run(const unsigned char*& from, size_t& from_size, char*& into, size_t& into_size) {
    stream_.next_in = const_cast<unsigned char*>(from);
    stream_.avail_in = static_cast<uInt>(from_size);
    stream_.next_out = reinterpret_cast<unsigned char*>(into);
    stream_.avail_out = static_cast<uInt>(into_size);
    const int code = inflate(&stream_, Z_NO_FLUSH);
    from = stream_.next_in, from_size = stream_.avail_in;
    into += into_size - stream_.avail_out, into_size = stream_.avail_out;
    if (code == Z_STREAM_END) return Progress::kMemberEnds;
    return code == Z_OK || code == Z_BUF_ERROR ? Progress::kGoesOn : Progress::kDamaged;
  }

 private:
  z_stream stream_{};
};
#endif

class GzipSource : public TextSource {
 public:
  explicit GzipSource(std::unique_ptr<TextSource> compressed)
      : compressed_(std::move(compressed)), buffer_(size_t{256} << 10) {}

  size_t read(char* into, size_t size) override {
    char* at = into;
    size_t left = size;
    while (left > 0 && !done_) {
      if (size_ == 0 && !pending_ && !refill()) break;
      if (between_members_ && !begin_member()) break;
      const size_t left_before = left, size_before = size_;
      const Progress progress = inflater_.run(next_, size_, at, left);
      given_ += left_before - left;
      pending_ = left == 0;  // there may be more without more input
      if (progress == Progress::kDamaged) {
        stop(format("its compressed data are damaged after %llu bytes of text",
                    static_cast<unsigned long long>(given_)));
      } else if (progress == Progress::kMemberEnds) {
        between_members_ = true, pending_ = false;
      } else if (left == left_before && size_ == size_before && size_ > 0) {
        stop("its compressed data lead nowhere");  // neither takes nor gives
      }
    }
    return size - left;
  }
  std::string problem() const override { return problem_; }
  uint64_t size_hint() const override {
    if (given_ == 0) return 0;
    const uint64_t taken = std::max<uint64_t>(1, taken_ - size_);
    const double ratio = static_cast<double>(given_) / static_cast<double>(taken);
    return static_cast<uint64_t>(ratio * static_cast<double>(compressed_->size_hint() + size_));
  }

 private:
  void stop(const std::string& problem) { done_ = true, problem_ = problem; }

  bool refill() {
    size_ = compressed_->read(reinterpret_cast<char*>(buffer_.data()), buffer_.size());
    next_ = buffer_.data();
    taken_ += size_;
    if (size_ > 0) return true;
    done_ = true;
    problem_ = compressed_->problem();
    if (problem_.empty() && !between_members_) {
      problem_ = format(
          "its compressed data are cut short after %llu bytes of text; was the writer "
          "interrupted, or the disk full?",
          static_cast<unsigned long long>(given_));
    }
    return false;
  }

  // Another member follows, or what writers pad with (zeros), or something else, which is left out.
  bool begin_member() {
    if (*next_ == 0x1f) {
      between_members_ = false;
      if (started_) inflater_.begin();
      return started_ = true;
    }
    const bool zeros = std::all_of(next_, next_ + size_, [](unsigned char c) { return c == 0; });
    if (zeros) return size_ = 0, refill() && begin_member();
    stop("something that is not gzip follows its compressed data, and is left out");
    return false;
  }

  std::unique_ptr<TextSource> compressed_;
  std::vector<unsigned char> buffer_;
  const unsigned char* next_ = nullptr;
  size_t size_ = 0;
  uint64_t taken_ = 0, given_ = 0;
  Inflater inflater_;
  bool between_members_ = true, started_ = false, done_ = false, pending_ = false;
  std::string problem_;
};

}  // namespace

std::unique_ptr<TextSource> gzip_text_source(std::unique_ptr<TextSource> compressed) {
  return std::make_unique<GzipSource>(std::move(compressed));
}

}  // namespace vitrine

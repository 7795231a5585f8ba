// Lines of a text source, in a buffer of two of the longest.
#include "readers/line_reader.h"

#include <cstring>

#include "core/error.h"

namespace vitrine {

LineReader::LineReader(const std::string& path) : path_(path), source_(open_text_source(path)) {
  buffer_.resize(2 * kLongestLine);
  refill();
  if (end_ == 0 && problem_.empty()) throw IoError(path + " is empty");
}

void LineReader::refill() {
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  const size_t wanted = buffer_.size() - end_;
  const size_t got = source_->read(buffer_.data() + end_, wanted);
  end_ += got;
  if (got == wanted) return;
  at_end_ = true;
  const std::string problem = source_->problem();
  if (!problem.empty()) problem_ = path_ + " is not whole: " + problem;
}

bool LineReader::next(std::string_view& line) {
  size_t searched = begin_;
  while (true) {
    const void* found = std::memchr(buffer_.data() + searched, '\n', end_ - searched);
    size_t stop = found == nullptr
                      ? end_
                      : static_cast<size_t>(static_cast<const char*>(found) - buffer_.data());
    const bool too_long = stop - begin_ > kLongestLine;
    if (too_long) stop = begin_ + kLongestLine;
    if (found != nullptr || too_long || (at_end_ && begin_ < end_)) {
      line = std::string_view(buffer_).substr(begin_, stop - begin_);
      begin_ = stop + (found != nullptr && !too_long ? 1 : 0);
      if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
      return true;
    }
    if (at_end_) return false;
    const size_t kept = end_ - begin_;
    refill();
    searched = kept;
  }
}

Beginning read_beginning(const std::string& path, size_t bytes) {
  Beginning out;
  const auto source = open_text_source(path);
  out.text.resize(bytes);
  size_t size = 0, got = 1;
  for (; size < bytes && got > 0; size += got) {
    got = source->read(out.text.data() + size, bytes - size);
  }
  out.text.resize(size);
  out.problem = source->problem();
  return out;
}

}  // namespace vitrine

// The lines of a plain or gzipped text file, one at a time, in memory that does not grow with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "readers/text_source.h"

namespace vitrine {

class LineReader {
 public:
  // Longer lines are given in pieces of this many bytes.
  static constexpr size_t kLongestLine = size_t{1} << 20;

  // Throws IoError: no such file, a folder, unreadable, empty.
  explicit LineReader(const std::string& path);

  // The next line without its end (LF, CRLF, or the end of the file); valid until the next call.
  bool next(std::string_view& line);
  // After the last line: why the text ends early ("its compressed data end after ..."); "" = it
  // does not.
  const std::string& problem() const { return problem_; }

 private:
  void refill();
  std::string path_, buffer_, problem_;
  std::unique_ptr<TextSource> source_;
  size_t begin_ = 0, end_ = 0;
  bool at_end_ = false;
};

struct Beginning {
  std::string text;
  std::string problem;  // as LineReader::problem, where the text ends early
};
// The first `bytes` bytes of a plain or gzipped file, fewer when it is shorter or damaged. Throws
// IoError: no such file, a folder, unreadable, empty.
Beginning read_beginning(const std::string& path, size_t bytes);

}  // namespace vitrine

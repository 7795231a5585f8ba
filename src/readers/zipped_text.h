// The whole text of a file that may be gzipped.
#pragma once

#include <cstddef>
#include <string>

namespace vitrine {

// Followed by `padding` zero bytes, which a parser may read beyond the end. Throws IoError: no such
// file, empty, a gzip stream that is cut or damaged (with the place where it ends).
std::string read_zipped_text(const std::string& path, size_t padding);

}  // namespace vitrine

// Small files of given content, plain or gzipped.
#pragma once

#include <zlib.h>

#include <fstream>
#include <string>

namespace vitrine {

inline std::string write_file(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

inline std::string write_gzip(const std::string& path, const std::string& content) {
  gzFile file = gzopen(path.c_str(), "wb6");
  gzwrite(file, content.data(), static_cast<unsigned>(content.size()));
  gzclose(file);
  return path;
}

inline std::string file_content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

}  // namespace vitrine

// What a file is, by its content.
#pragma once

#include <optional>
#include <string>

#include "readers/inputs.h"

namespace vitrine {

struct FileKind {
  std::optional<InputKind> kind;  // none: nothing that is read here
  std::string what;               // then: "a PNG picture", "text", "empty"
  std::string advice;             // and what to do with it, "" = nothing in particular
};

// Gzipped files are looked into. Text is searched for NCCL's lines in its first kSearchedBytes.
// Throws IoError when the file can't be opened.
FileKind recognise_file(const std::string& path);
constexpr size_t kSearchedBytes = size_t{64} << 20;

}  // namespace vitrine

// Whether an Ogg or Matroska file ends where it says: libavformat reads cut-off ones without a
// word.
#pragma once

#include <string>

namespace vitrine {

// Why the file must have been cut off, or "" when it is whole, makes no statement (Matroska written
// as a live stream) or is of another kind.
std::string missing_end_of_ogg(const std::string& path);
std::string missing_end_of_matroska(const std::string& path);  // also WebM

}  // namespace vitrine

// Where large reference data lie that are no part of the repository.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace vitrine {

// VITRINE_SHARED_DATA, else ../shared/data beside the source folder (tests run in it); "" when
// absent.
inline std::string shared_data() {
  const char* given = std::getenv("VITRINE_SHARED_DATA");
  const std::string folder = given != nullptr ? given : "../shared/data";
  return std::filesystem::exists(folder) ? folder : "";
}

}  // namespace vitrine

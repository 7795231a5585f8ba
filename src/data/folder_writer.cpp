// Temporary folders renamed into place.
#include "data/folder_writer.h"

#include <unistd.h>

#include <filesystem>

#include "core/error.h"

namespace vitrine {
namespace fs = std::filesystem;

FolderWriter::FolderWriter(const std::string& dir, bool overwrite)
    : dir_(fs::path(dir).lexically_normal().string()), overwrite_(overwrite) {
  if (dir.empty()) throw ConfigError("no output folder was named");
  if (dir_.size() > 1 && dir_.back() == '/') dir_.pop_back();
  if (!overwrite && fs::exists(dir_)) {
    throw ConfigError(dir_ +
                      " exists already; remove it, ask to overwrite, or choose another name");
  }
  temporary_ = dir_ + ".tmp" + std::to_string(getpid());
  std::error_code error;
  fs::create_directories(temporary_, error);
  if (error) throw IoError("cannot create " + temporary_ + ": " + error.message());
}

FolderWriter::~FolderWriter() {
  std::error_code ignored;
  if (open_) fs::remove_all(temporary_, ignored);
}

void FolderWriter::finish() {
  std::error_code error;
  const std::string old = dir_ + ".old" + std::to_string(getpid());
  const bool replacing = overwrite_ && fs::exists(dir_);
  if (replacing) fs::rename(dir_, old, error);
  if (!error) fs::rename(temporary_, dir_, error);
  if (error) throw IoError("cannot rename " + temporary_ + " to " + dir_ + ": " + error.message());
  open_ = false;
  if (replacing) fs::remove_all(old, error);
}

}  // namespace vitrine

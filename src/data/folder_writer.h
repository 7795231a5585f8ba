// A folder that appears whole or not at all.
#pragma once

#include <string>

namespace vitrine {

// Files go into path(), a temporary folder beside `dir`; finish() renames it to `dir`. Destroyed
// before that, it removes what was written. An existing `dir` is a ConfigError unless `overwrite`,
// and then it is replaced whole. Throws IoError.
class FolderWriter {
 public:
  FolderWriter(const std::string& dir, bool overwrite);
  ~FolderWriter();
  FolderWriter(const FolderWriter&) = delete;
  FolderWriter& operator=(const FolderWriter&) = delete;

  const std::string& path() const { return temporary_; }
  const std::string& final_path() const { return dir_; }
  void finish();

 private:
  std::string dir_, temporary_;
  bool overwrite_, open_ = true;
};

}  // namespace vitrine

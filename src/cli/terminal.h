// What people see in the terminal: progress, errors, log lines.
#pragma once

#include <cstdint>
#include <string>

#include "train/trainer.h"

namespace vitrine {

// One paragraph on stderr, beginning with "error:" (and the rank, when there are several).
void print_error(const std::string& text);
// Log lines of the library go to stderr from now on.
void install_log_sink();

// A progress bar on one line of a terminal; a line a call elsewhere.
class ProgressBar {
 public:
  void show(const ProgressLine& line);
  // A line of text above the bar.
  void message(const std::string& text);
  void finish();

 private:
  bool open_ = false;
};

}  // namespace vitrine

// Terminal output.
#include "cli/terminal.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "core/format.h"
#include "core/log.h"

namespace vitrine {

void print_error(const std::string& text) {
  const char* rank = std::getenv("RANK");
  const char* world = std::getenv("WORLD_SIZE");
  const bool several = rank && world && std::atoi(world) > 1;
  std::fprintf(stderr,
               "error%s: %s\n",
               several ? (std::string(" on rank ") + rank).c_str() : "",
               text.c_str());
}

void install_log_sink() {
  set_log_sink([](LogLevel level, const std::string& line) {
    const char* prefix = level == LogLevel::kInfo      ? ""
                         : level == LogLevel::kWarning ? "warning: "
                                                       : "error: ";
    std::fprintf(stderr, "%s%s\n", prefix, line.c_str());
  });
}

void ProgressBar::show(const ProgressLine& line) {
  const bool terminal = isatty(STDOUT_FILENO) != 0;
  constexpr int kWidth = 24;
  const int filled = static_cast<int>(line.progress * kWidth + 0.5);
  std::string bar;
  for (int i = 0; i < kWidth; ++i) bar += i < filled ? "\u2588" : "\u2591";
  std::string text = format("%s %3.0f %%  step %lld",
                            bar.c_str(),
                            line.progress * 100,
                            static_cast<long long>(line.step));
  if (line.total_steps > 0) text += format("/%lld", static_cast<long long>(line.total_steps));
  text += format("  loss %.4g  lr %.2g  %s %s/s  comm %.0f %%  data %.0f %%  %.0f s",
                 line.loss,
                 line.lr,
                 format_count(line.units_per_second).c_str(),
                 line.unit.c_str(),
                 line.comm_share * 100,
                 line.data_share * 100,
                 line.seconds);
  if (line.skipped_steps > 0)
    text += format("  skipped %lld", static_cast<long long>(line.skipped_steps));
  if (terminal) {
    std::printf("\r\033[K%s", text.c_str());
    open_ = true;
  } else {
    std::printf("%s\n", text.c_str());
  }
  std::fflush(stdout);
}

void ProgressBar::message(const std::string& text) {
  if (open_) std::printf("\r\033[K");
  open_ = false;
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

void ProgressBar::finish() {
  if (open_) std::printf("\n");
  open_ = false;
}

}  // namespace vitrine

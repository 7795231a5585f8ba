// Log sink.
#include "core/log.h"

#include <mutex>
#include <utility>

namespace vitrine {
namespace {

std::mutex mutex;
std::function<void(LogLevel, const std::string&)>& sink() {
  static std::function<void(LogLevel, const std::string&)> instance;
  return instance;
}

void write(LogLevel level, const std::string& line) {
  const std::lock_guard lock(mutex);
  if (sink()) sink()(level, line);
}

}  // namespace

void set_log_sink(std::function<void(LogLevel, const std::string&)> new_sink) {
  const std::lock_guard lock(mutex);
  sink() = std::move(new_sink);
}

void log_info(const std::string& line) { write(LogLevel::kInfo, line); }
void log_warning(const std::string& line) { write(LogLevel::kWarning, line); }
void log_error(const std::string& line) { write(LogLevel::kError, line); }

}  // namespace vitrine

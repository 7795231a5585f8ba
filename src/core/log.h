// Log lines through one sink, so that the library itself never prints.
#pragma once

#include <functional>
#include <string>

namespace vitrine {

enum class LogLevel { kInfo, kWarning, kError };

// Called with each line (no newline). The default sink drops everything; the CLI installs its own.
void set_log_sink(std::function<void(LogLevel, const std::string&)> sink);
void log_info(const std::string& line);
void log_warning(const std::string& line);
void log_error(const std::string& line);

}  // namespace vitrine

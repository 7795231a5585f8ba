// Lines of JSON, appended; and the cut that a resumed run makes in them.
#include "metrics/metrics_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "core/clock.h"
#include "core/error.h"
#include "core/json.h"
#include "metrics/metrics_reader.h"

namespace vitrine {

MetricsWriter::MetricsWriter(const std::string& folder, const MetricsOptions& options)
    : path_(folder + "/metrics.jsonl"), last_step_(options.resumed_step) {
  std::string kept;
  if (options.resumed_step >= 0 && std::filesystem::exists(path_)) {
    kept = lines_up_to_step(read_text_file(path_), options.resumed_step);
  }
  write_text_file(path_, kept);
  fd_ = open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (fd_ < 0) throw IoError("cannot open " + path_ + ": " + std::strerror(errno));
  if (options.tensorboard) {
    events_ = std::make_unique<EventFile>(folder,
                                          options.resumed_step < 0 ? 0 : options.resumed_step + 1);
  }
}

MetricsWriter::~MetricsWriter() {
  if (fd_ >= 0) close(fd_);
}

void MetricsWriter::write(int64_t step, const Metrics& values) {
  if (step <= last_step_) {
    throw ConfigError(path_ + ": step " + std::to_string(step) + " comes after step " +
                      std::to_string(last_step_) + "; steps must ascend");
  }
  const ClockAnchor& anchor = clock_anchor();
  const double wall = static_cast<double>(anchor.wall_ns + (now_ns() - anchor.monotonic_ns)) / 1e9;
  Json line{{"step", step}, {"time", std::round(wall * 1000) / 1000}};
  for (const auto& [name, value] : values) {
    // Counts stay whole numbers, so that they are read without a decimal point.
    if (value == std::floor(value) && std::fabs(value) < 9e15) {
      line[name] = static_cast<int64_t>(value);
    } else {
      line[name] = value;  // NaN and infinities are dumped as null
    }
  }
  const std::string text = line.dump() + "\n";
  const ssize_t n = ::write(fd_, text.data(), text.size());
  if (n != static_cast<ssize_t>(text.size())) {
    throw IoError("cannot write " + path_ + ": " + (n < 0 ? std::strerror(errno) : "disk full"));
  }
  last_step_ = step;
  if (events_) events_->scalars(wall, step, values);
}

}  // namespace vitrine

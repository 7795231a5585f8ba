// TensorBoard event files: TFRecord framing around hand-encoded tensorflow.Event messages of
// scalars.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace vitrine {

// Castagnoli CRC as TFRecord uses it (polynomial 0x1EDC6F41, reflected).
uint32_t crc32c(std::string_view bytes);
// TFRecord stores this instead, so that a CRC of data that holds CRCs stays meaningful.
uint32_t masked_crc32c(std::string_view bytes);

// One new file `folder`/events.out.tfevents.<seconds>.<host>.<pid>.<n>; earlier files of the folder
// stay. Each call is one write, so a crash leaves at most one torn record at the end, which readers
// skip.
class EventFile {
 public:
  // `first_step` > 0 (a resumed run): tells TensorBoard to forget what earlier files hold from that
  // step on.
  EventFile(const std::string& folder, int64_t first_step);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  void scalars(double wall_time_s,
               int64_t step,
               const std::vector<std::pair<std::string, double>>& values);
  const std::string& path() const { return path_; }

 private:
  void record(const std::string& event);
  std::string path_;
  int fd_ = -1;
};

}  // namespace vitrine

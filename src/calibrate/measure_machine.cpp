// Collectives by size, hand-over between threads, disk.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <fstream>
#include <functional>
#include <mutex>
#include <numeric>
#include <thread>

#include "calibrate/cache_flush.h"
#include "calibrate/calibrate.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/format.h"
#include "core/short_slice.h"

namespace vitrine {
namespace {

// Processor time of all threads of this process.
int64_t cpu_ns() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto ns = [](const timeval& t) { return t.tv_sec * 1'000'000'000LL + t.tv_usec * 1000LL; };
  return ns(usage.ru_utime) + ns(usage.ru_stime);
}

class CollectiveBench {
 public:
  CollectiveBench(World& world, bool quick) : quick_(quick) {
    std::vector<int> all(static_cast<size_t>(world.size()));
    std::iota(all.begin(), all.end(), 0);
    comm_ = world.group(all, "calibrate");
  }

  std::vector<MeasuredCollective> run() {
    const auto ranks = static_cast<size_t>(comm_->size());
    for (const size_t bytes : {size_t{512},
                               size_t{8} << 10,
                               size_t{64} << 10,
                               size_t{512} << 10,
                               size_t{2} << 20,
                               size_t{8} << 20}) {
      if (quick_ && bytes > size_t{2} << 20) continue;
      // One piece is longer, as where a unit's elements do not divide.
      std::vector<int64_t> counts(ranks, static_cast<int64_t>(bytes / 4));
      counts[0] += 64;
      std::vector<int64_t> sizes;
      for (const int64_t count : counts) sizes.push_back(count * 4);
      const size_t own = static_cast<size_t>(comm_->rank());
      std::vector<float> piece(bytes / 4 + 64, 1.0F), whole(ranks * piece.size(), 1.0F);
      const auto all_bytes = static_cast<size_t>(std::accumulate(sizes.begin(), sizes.end(), 0LL));
      const std::span<const std::byte> mine(std::as_bytes(std::span(piece)));
      const std::span<std::byte> full(std::as_writable_bytes(std::span(whole)));
      const auto own_bytes = static_cast<size_t>(sizes[own]);
      measure("all_gather", bytes, [&] {
        comm_->all_gather(mine.first(bytes), full.first(ranks * bytes));
      });
      measure("all_gather_v", bytes, [&] {
        comm_->all_gather_v(mine.first(own_bytes), full.first(all_bytes), sizes);
      });
      measure("reduce_scatter", bytes, [&] {
        comm_->reduce_scatter(
            whole.data(), piece.data(), static_cast<int64_t>(bytes / 4), DType::kF32);
      });
      measure("reduce_scatter_v", bytes, [&] {
        comm_->reduce_scatter_v(whole.data(), counts, piece.data(), DType::kF32);
      });
      measure("send", bytes, [&] {
        if (own == 0) comm_->send(mine.first(bytes), 1);
        if (own == 1) comm_->receive(full.first(bytes), 0);
      });
    }
    return std::move(results_);
  }

 private:
  // Brings all ranks to one moment, and lets them compute from there for about a millisecond, as in
  // a step: they come apart as they do there, whoever receives is asleep, and large operands are in
  // no cache. The ranks' clocks are one host's.
  void compute_before(bool large) {
    comm_->barrier();
    int64_t moment = now_ns() + (large ? flush_ns_ : 0) + 500'000;
    comm_->broadcast(std::as_writable_bytes(std::span(&moment, 1)), 0);
    if (large) {
      const int64_t start = now_ns();
      flush_();
      flush_ns_ = std::max(flush_ns_, now_ns() - start);
    }
    while (now_ns() < moment) {
    }
    flush_(size_t{4} << 20);
  }

  void measure(const char* kind, size_t bytes, const std::function<void()>& call) {
    const bool large = bytes >= size_t{512} << 10;
    call();                                          // makes connections
    const int calls = quick_ ? 9 : large ? 15 : 41;  // the same on all ranks
    std::vector<int64_t> times;
    int64_t busy = 0, wall = 0;
    for (int i = 0; i < calls; ++i) {
      compute_before(large);
      const int64_t cpu = cpu_ns(), start = now_ns();
      call();
      times.push_back(now_ns() - start);
      busy += cpu_ns() - cpu;
      wall += times.back();
    }
    // Of a call the mean over the ranks: the transfer, and what the last to come is late on
    // average.
    const auto ranks = static_cast<size_t>(comm_->size());
    const size_t taking_part = std::strcmp(kind, "send") == 0 ? 2 : ranks;
    std::vector<int64_t> all(ranks * times.size());
    comm_->all_gather(std::as_bytes(std::span(times)), std::as_writable_bytes(std::span(all)));
    std::vector<double> means(times.size());
    for (size_t i = 0; i < times.size(); ++i) {
      for (size_t r = 0; r < taking_part; ++r)
        means[i] +=
            static_cast<double>(all[r * times.size() + i]) / static_cast<double>(taking_part);
    }
    std::array<double, 2> spent{static_cast<double>(busy), static_cast<double>(wall)};
    std::vector<double> every(2 * ranks);
    comm_->all_gather(std::as_bytes(std::span(spent)), std::as_writable_bytes(std::span(every)));
    double cores = 0;
    for (size_t r = 0; r < ranks; ++r) cores += every[2 * r] / std::max(1.0, every[2 * r + 1]);
    MeasuredCollective result{kind, comm_->size(), static_cast<double>(bytes)};
    std::nth_element(means.begin(), means.begin() + calls / 2, means.end());
    result.ns = means[static_cast<size_t>(calls) / 2];
    result.cores = cores / static_cast<double>(taking_part);
    results_.push_back(result);
  }

  bool quick_;
  CacheFlush flush_;
  int64_t flush_ns_ = 10'000'000;
  std::shared_ptr<Communicator> comm_;
  std::vector<MeasuredCollective> results_;
};

}  // namespace

std::vector<MeasuredCollective> measure_collectives(World& world, bool quick) {
  if (world.size() < 2)
    throw ConfigError("collectives need at least 2 ranks, there is " +
                      std::to_string(world.size()));
  return CollectiveBench(world, quick).run();
}

double measure_handoff_ns() {
  constexpr int kRounds = 101;
  constexpr int64_t kComputes = 1'000'000;
  std::mutex mutex;
  std::condition_variable changed;
  int given = 0;
  std::atomic<int> taken = 0;
  int64_t given_ns = 0;
  std::vector<int64_t> times;
  std::thread lane([&] {
    const ShortSlice as_lanes_have;
    for (int i = 1; i <= kRounds; ++i) {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return given == i; });
      times.push_back(now_ns() - given_ns);
      taken = i;
    }
  });
  const auto compute = [] {
    for (const int64_t end = now_ns() + kComputes; now_ns() < end;) {
    }
  };
  for (int i = 1; i <= kRounds; ++i) {
    compute();  // meanwhile the other falls asleep
    {
      const std::lock_guard lock(mutex);
      given = i;
      given_ns = now_ns();
    }
    changed.notify_one();
    while (taken < i) {  // computing
    }
  }
  lane.join();
  std::nth_element(times.begin(), times.begin() + kRounds / 2, times.end());
  return static_cast<double>(times[kRounds / 2]);
}

DiskSpeed measure_disk(const std::string& folder, int64_t bytes) {
  const std::string path = folder + "/.vitrine-disk-" + std::to_string(getpid());
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  const auto fail = [&](const char* what) {
    const std::string reason = std::strerror(errno);
    if (file >= 0) close(file);
    unlink(path.c_str());
    throw IoError(std::string("measuring the disk: cannot ") + what + " " + path + ": " + reason);
  };
  if (file < 0) fail("create");
  const std::vector<char> block(size_t{4} << 20, 'v');
  std::vector<char> back(block.size());
  int64_t start = now_ns();
  for (int64_t at = 0; at < bytes; at += static_cast<int64_t>(block.size())) {
    if (pwrite(file, block.data(), block.size(), at) != static_cast<ssize_t>(block.size()))
      fail("write");
  }
  if (fsync(file) != 0) fail("write");
  DiskSpeed speed;
  speed.write_bytes_per_s =
      static_cast<double>(bytes) * 1e9 / static_cast<double>(now_ns() - start);
  posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  start = now_ns();
  for (int64_t at = 0; at < bytes; at += static_cast<int64_t>(back.size())) {
    if (pread(file, back.data(), back.size(), at) != static_cast<ssize_t>(back.size()))
      fail("read");
  }
  speed.read_bytes_per_s = static_cast<double>(bytes) * 1e9 / static_cast<double>(now_ns() - start);
  close(file);
  unlink(path.c_str());
  return speed;
}

std::string processor_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("model name")) continue;
    const size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "processor";
}

}  // namespace vitrine

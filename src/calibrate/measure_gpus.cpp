// One GPU's numbers, and the slowest of all.
#include "calibrate/measure_gpus.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>

#include "core/buffer.h"
#include "core/clock.h"
#include "core/device.h"
#include "core/error.h"
#include "core/format.h"
#include "core/parallel.h"
#include "gpu/gpu.h"
#include "gpu/probe.h"
#include "ops/gpu/bench_gpu_ops.h"
#include "ops/gpu/sustained_ops.h"
#include "optim/gpu/bench_gpu_update.h"

namespace vitrine {
namespace {

// Of decoders of 1.5 and 7 billion parameters: queries, keys and values; output; gate and up; down.
std::vector<ProductShape> product_shapes(bool quick) {
  std::vector<ProductShape> shapes;
  struct Width {
    int64_t rows, width, qkv, hidden;
  };
  for (const Width w : {Width{16384, 1536, 2048, 8960}, {8192, 3584, 4608, 18944}}) {
    for (const bool fp8 : {false, true}) {
      shapes.push_back({w.rows, w.width, w.qkv, fp8});
      shapes.push_back({w.rows, w.width, w.width, fp8});
      shapes.push_back({w.rows, w.width, 2 * w.hidden, fp8});
      shapes.push_back({w.rows, w.hidden, w.width, fp8});
    }
    if (quick) break;
  }
  return shapes;
}

// Passes that are long enough to be limited by memory.
constexpr double kLongPass = 64 << 20;

std::vector<MeasuredGpus::Pass> measure_passes(int gpu, bool quick) {
  GpuBenchOptions options;
  options.gpu = gpu;
  options.passes_only = true;
  options.samples = quick ? 3 : 7;
  std::vector<MeasuredGpus::Pass> passes;
  const auto add = [&](const std::string& op, bool backward, double gbps, double ns) {
    const double bytes = std::round(gbps * ns);
    if (bytes >= kLongPass) passes.push_back({op, backward, bytes, ns});
  };
  for (const GpuOpTiming& t : bench_gpu_ops(options)) add(t.op, t.backward, t.gbps, t.ns);
  for (const GpuUpdateTiming& t : bench_gpu_update(options.samples, gpu)) {
    // What the sums take in a step is ruled by what runs beside them.
    if (t.pass != "bf16_terms_and_squares") add(t.pass, false, t.gbps, t.ns);
  }
  return passes;
}

class GpuCollectives {
 public:
  GpuCollectives(World& world, Communicator& host, Device& device, bool quick)
      : ledger_(device), device_(device), quick_(quick), host_(host) {
    nccl_ = world.group(host.global_ranks(), "calibrate");
    shared_ = world.group(host.global_ranks(), "calibrate.shared");
  }

  std::vector<MeasuredGpus::Collective> run() {
    const auto ranks = static_cast<size_t>(nccl_->size());
    const size_t largest = quick_ ? size_t{64} << 20 : size_t{256} << 20;  // of the whole
    const Buffer piece = zeros(largest / ranks), whole = zeros(largest);
    const size_t window_bytes = shared_->window_bytes(largest);
    const Buffer window = window_bytes > 0 ? zeros(window_bytes) : Buffer();
    const std::span<const std::byte> mine = first(piece, piece.bytes());
    const bool copies = shared_->share(std::span(&mine, 1), first(window, window_bytes));
    for (size_t bytes = size_t{1} << 20; bytes <= largest; bytes *= 4) {
      const size_t part = bytes / ranks / 512 * 512;
      const auto count = static_cast<int64_t>(part / dtype_bytes(DType::kBF16));
      const double all = static_cast<double>(part * ranks);
      measure("all_gather", all, [&] {
        nccl_->all_gather(first(piece, part), first(whole, part * ranks));
      });
      measure("reduce_scatter", all, [&] {
        nccl_->reduce_scatter(whole.data(), piece.data(), count, DType::kBF16);
      });
      if (!copies) continue;
      // Pieces that are shared are gathered whole.
      if (bytes == largest) {
        const std::vector<int64_t> sizes(ranks, static_cast<int64_t>(piece.bytes()));
        measure("gather_shared", static_cast<double>(piece.bytes() * ranks), [&] {
          shared_->gather_shared(0, first(whole, piece.bytes() * ranks), sizes);
        });
      }
      if (window_bytes == 0) continue;
      const std::vector<int64_t> counts(ranks, count);
      measure("reduce_shared", all, [&] {
        shared_->reduce_scatter_v(whole.data(), counts, piece.data(), DType::kBF16);
      });
    }
    device_.synchronize();
    host_.barrier();
    return std::move(results_);
  }

 private:
  // Throws OutOfMemory.
  Buffer zeros(size_t bytes) {
    return {ledger_, MemoryCategory::kCommunication, "calibrate", bytes, true};
  }
  static std::span<std::byte> first(const Buffer& buffer, size_t bytes) {
    return {static_cast<std::byte*>(buffer.data()), bytes};
  }

  // Of a call among many that follow each other, by the device's clock; ranks begin together.
  void measure(const char* kind, double bytes, const std::function<void()>& call) {
    const int calls = quick_ ? 5 : 20;
    call();
    device_.synchronize();
    std::vector<double> rounds;
    for (int round = 0; round < 3; ++round) {
      host_.barrier();
      const auto start = device_.timed_point();
      for (int i = 0; i < calls; ++i) call();
      const auto end = device_.timed_point();
      device_.synchronize();
      rounds.push_back(static_cast<double>(device_.elapsed_ns(start, end)) / calls);
    }
    std::sort(rounds.begin(), rounds.end());
    results_.push_back({kind, bytes, std::max(1.0, rounds[1])});
  }

  MemoryLedger ledger_;
  Device& device_;
  const bool quick_;
  Communicator& host_;
  std::shared_ptr<Communicator> nccl_, shared_;
  std::vector<MeasuredGpus::Collective> results_;
};

// Visits what is compared between ranks: rates, of which the lowest counts, and times.
template <typename Visit>
void visit_numbers(MeasuredGpus& gpus, const Visit& visit) {
  for (double* rate : {&gpus.memory_bytes,
                       &gpus.copy_bytes_per_s,
                       &gpus.upload_bytes_per_s,
                       &gpus.download_bytes_per_s}) {
    visit(*rate, true);
  }
  visit(gpus.issue_ns, false);
  for (MeasuredGpus::Peak& each : gpus.peaks) visit(each.flops_per_s, true);
  for (MeasuredGpus::Product& each : gpus.products) {
    visit(each.forward_ns, false);
    visit(each.backward_ns, false);
  }
  for (MeasuredGpus::Pass& each : gpus.passes) visit(each.ns, false);
  for (MeasuredGpus::Collective& each : gpus.collectives) visit(each.ns, false);
}

template <typename T>
std::vector<T> from_all(Communicator& host, const T& own) {
  std::vector<T> all(static_cast<size_t>(host.size()));
  host.all_gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(all)));
  return all;
}

}  // namespace

void check_same_kind(Communicator& host, const MeasuredGpus& gpus) {
  std::array<char, 256> own{};
  (gpus.name + ", " + std::to_string(gpus.multiprocessors) + " multiprocessors")
      .copy(own.data(), own.size() - 1);
  const auto kinds = from_all(host, own);
  for (const std::array<char, 256>& each : kinds) {
    if (each == kinds[0]) continue;
    throw ConfigError(std::string("calibrate: the GPUs of this machine are not of one kind (") +
                      kinds[0].data() + "; " + each.data() +
                      "): choose equal ones with CUDA_VISIBLE_DEVICES, and measure the others into "
                      "a profile of their own");
  }
}

void take_slowest(Communicator& host, MeasuredGpus& gpus) {
  const auto ranks = static_cast<size_t>(host.size());
  std::vector<double> numbers;
  visit_numbers(gpus, [&](const double& value, bool) { numbers.push_back(value); });
  for (const size_t theirs : from_all(host, numbers.size())) {
    if (theirs == numbers.size()) continue;
    throw DeviceError(
        "calibrate: the GPUs did not measure the same (one has less free memory than another): "
        "end what else uses them, and calibrate again");
  }
  std::vector<double> all(numbers.size() * ranks);
  host.all_gather(std::as_bytes(std::span(numbers)), std::as_writable_bytes(std::span(all)));
  size_t at = 0;
  visit_numbers(gpus, [&](double& value, bool rate) {
    for (size_t r = 0; r < ranks; ++r) {
      const double theirs = all[r * numbers.size() + at];
      value = rate ? std::min(value, theirs) : std::max(value, theirs);
    }
    ++at;
  });
}

MeasuredGpus measure_gpus(World* world, const RankEnvironment& environment, bool quick) {
  const int index = environment.gpu();
  std::shared_ptr<Communicator> host;
  if (world) {
    std::vector<int> all(static_cast<size_t>(world->size()));
    std::iota(all.begin(), all.end(), 0);
    host = world->host_group(all, "calibrate.host");
  }
  const auto together = [&] {
    if (host) host->barrier();
  };
  const GpuProbe probe = probe_gpu(index);
  if (!probe.failure.empty()) throw DeviceError(probe.failure);
  MeasuredGpus gpus;
  gpus.name = probe.gpu.name;
  gpus.count = world ? world->size() : 1;
  gpus.multiprocessors = probe.gpu.multiprocessors;
  gpus.architecture = 10 * probe.gpu.major + probe.gpu.minor;
  if (host) check_same_kind(*host, gpus);
  gpus.memory_bytes = static_cast<double>(probe.total_bytes);
  gpus.copy_bytes_per_s = probe.copy_bytes_per_s;
  const HostLink link = probe_host_link(index, together);
  gpus.upload_bytes_per_s = link.upload_bytes_per_s;
  gpus.download_bytes_per_s = link.download_bytes_per_s;
  for (const ProductProbe& product : probe.products) {
    if (product.refused.empty() && !product.right()) {
      throw DeviceError(probe.gpu.name + ": products in " + product.dtype +
                        " are wrong; vitrine doctor gpu says by how much");
    }
    // Every dtype, so that ranks compare like with like; what one of them lacks is 0.
    gpus.peaks.push_back({product.dtype, product.native() ? product.flops_per_s : 0});
  }
  together();
  const double room = 0.5 * static_cast<double>(probe.free_bytes);
  for (const SustainedProduct& each :
       sustained_products(index, product_shapes(quick), quick ? 0.1 : 0.3, room)) {
    gpus.products.push_back({each.shape.fp8,
                             static_cast<double>(each.shape.rows),
                             static_cast<double>(each.shape.in),
                             static_cast<double>(each.shape.out),
                             each.forward_ns,
                             each.backward_ns});
  }
  together();
  gpus.passes = measure_passes(index, quick);
  gpus.issue_ns = gpu_issue_ns(index);
  if (gpus.products.empty() || gpus.passes.empty()) {
    throw OutOfMemory(
        format("calibrate: GPU %d has %s free of %s, too little to measure products "
               "and passes of usual sizes: end what else uses it",
               index,
               format_bytes(static_cast<double>(probe.free_bytes)).c_str(),
               format_bytes(gpus.memory_bytes).c_str()));
  }
  if (world) {
    const auto device = make_gpu_device(index);
    device->enter_lane(0);
    gpus.collectives = GpuCollectives(*world, *host, *device, quick).run();
    take_slowest(*host, gpus);
  }
  std::erase_if(gpus.peaks, [](const MeasuredGpus::Peak& each) { return each.flops_per_s == 0; });
  return gpus;
}

MeasuredHost measure_host(const std::string& folder, bool quick) {
  MeasuredHost host;
  host.processor = processor_name();
  host.cpus = compute_threads();
  host.memory_bytes =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  // Beyond the caches of large servers; touched first by the threads that copy it.
  const size_t count = (quick ? size_t{128} : size_t{512}) << 20;
  const auto from = std::make_unique_for_overwrite<std::byte[]>(count),
             to = std::make_unique_for_overwrite<std::byte[]>(count);
  const auto share = [&](const auto& work) {
    parallel_for(static_cast<int64_t>(count), int64_t{1} << 20, [&](int64_t begin, int64_t end) {
      work(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
    });
  };
  share([&](size_t at, size_t bytes) {
    std::memset(&from[at], 1, bytes);
    std::memset(&to[at], 2, bytes);
  });
  int64_t best = 0;
  for (int round = 0; round < 5; ++round) {
    const int64_t start = now_ns();
    share([&](size_t at, size_t bytes) { std::memcpy(&to[at], &from[at], bytes); });
    const int64_t ns = std::max<int64_t>(now_ns() - start, 1);
    best = best == 0 ? ns : std::min(best, ns);
  }
  host.bytes_per_s = 2e9 * static_cast<double>(count) / static_cast<double>(best);
  host.disk = measure_disk(folder, int64_t{quick ? 16 : 256} << 20);
  return host;
}

}  // namespace vitrine

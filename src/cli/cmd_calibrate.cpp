// vitrine calibrate: measures this machine into a profile.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>

#include "calibrate/calibrate.h"
#include "calibrate/measure_gpus.h"
#include "cli/calibration_text.h"
#include "cli/commands.h"
#include "cli/launch.h"
#include "comm/launcher.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/format.h"
#include "core/json.h"
#include "core/parallel.h"
#include "gpu/gpu.h"

namespace vitrine {
namespace {

namespace fs = std::filesystem;

constexpr int kRanksAProcessor = 4;  // more say nothing about the machine

struct Arguments {
  std::string out = "profile.json", device = "cpu", part;
  int ranks = 0;
  bool quick = false, json = false;
};

std::vector<DType> dtypes(bool quick) {
  return quick ? std::vector<DType>{DType::kF32} : std::vector<DType>{DType::kF32, DType::kBF16};
}

// Rounds of all dtypes in turn; after the first of them `between`.
std::vector<MeasuredOperations> measure_operations(bool quick,
                                                   World* world,
                                                   const std::function<void()>& between) {
  std::vector<OperationTimes> times;
  // Of bf16 the coarse grid is enough: what differs from f32 differs alike over shapes.
  for (const DType dtype : dtypes(quick))
    times.emplace_back(dtype, quick || dtype != DType::kF32, world);
  for (int round = 0; round < OperationTimes::kRounds; ++round) {
    for (OperationTimes& each : times) each.round();
    if (round == 0) between();
  }
  std::vector<MeasuredOperations> results;
  for (const OperationTimes& each : times) results.push_back(each.result());
  return results;
}

// One of the ranks that are started: collectives, and operations beside each other.
int measure_as_rank(const Arguments& a, const CommandLine& line) {
  return run_ranks(1, line, "", 60, "cpu", [&](World* world) {
    if (!world) throw UsageError("--part is for the ranks that vitrine calibrate starts");
    MeasuredMachine part;
    part.handoff_ns = 1;  // measured by the one that started us
    part.operations = measure_operations(
        a.quick, world, [&] { part.collectives = measure_collectives(*world, a.quick); });
    if (world->rank() == 0) write_text_file(a.part, measured_json(part).dump());
    return 0;
  });
}

int measure_gpu_as_rank(const Arguments& a, const CommandLine& line) {
  return run_ranks(1, line, "", 120, "gpu", [&](World* world) {
    if (!world) throw UsageError("--part is for the ranks that vitrine calibrate starts");
    const MeasuredGpus part = measure_gpus(world, rank_environment(), a.quick);
    if (world->rank() == 0) write_text_file(a.part, measured_gpus_json(part).dump());
    return 0;
  });
}

// Removed with what is in it when the measurement ends.
struct TemporaryFolder {
  fs::path path = fs::temp_directory_path() / ("vitrine-calibrate-" + std::to_string(getpid()));
  TemporaryFolder() { fs::create_directories(path); }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
};

// What rank 0 of those started here writes.
Json measure_ranks(const Arguments& a, const CommandLine& line) {
  const TemporaryFolder folder;
  LaunchOptions options;
  options.ranks = a.ranks;
  options.arguments = line.arguments;
  options.arguments.insert(options.arguments.end(), {"--part", (folder.path / "part").string()});
  options.log_folder = folder.path;
  options.out_fd = options.error_fd = -1;
  const LaunchResult result = launch_ranks(options);
  if (result.signal != 0) {
    throw CommError(
        format("calibrate: interrupted by signal %d; no profile was written", result.signal));
  }
  if (!result.ok()) throw CommError("calibrate: " + result.summary + "\n" + result.log_tail);
  return read_json_file((folder.path / "part").string());
}

// Best and median rate of an operation, in 1e9 a second.
struct Rate {
  double best = 0;
  std::vector<double> all;
};

void print_operations(const MeasuredOperations& table) {
  std::map<std::pair<std::string, bool>, Rate> rates;
  double product = 0, copy = 0, longest = 0;
  for (const MeasuredRow& row : table.rows) {
    Rate& rate = rates[{row.op, row.backward}];
    rate.all.push_back(row.work / row.ns);
    rate.best = std::max(rate.best, rate.all.back());
    if (row.op == "linear") product = std::max(product, rate.best);
    if (row.op == "copy" && row.work >= longest) {  // the longest goes to memory
      longest = row.work;
      copy = 2 * rate.all.back();
    }
  }
  std::printf(
      "\n%s, %d thread%s%s: rates over shapes (100 %% = best product; copy in memory)\n",
      table.dtype.c_str(),
      table.threads,
      table.threads == 1 ? "" : "s",
      table.ranks == 1
          ? ""
          : (" a rank, " + std::to_string(table.ranks) + " ranks at the same time").c_str());
  for (auto& [key, rate] : rates) {
    const auto& [op, backward] = key;
    const bool products = op.starts_with("linear") || op == "attention";
    const bool pass = op == "adamw" || op == "squares";
    std::sort(rate.all.begin(), rate.all.end());
    const double middle = rate.all[rate.all.size() / 2];
    const double scale = op == "copy" ? 2 : 1;
    const char* unit = products ? "GFLOP/s" : pass ? "G elements/s" : "GB/s";
    std::printf("  %-22s %-8s  median %8.2f  best %8.2f %s",
                op.c_str(),
                pass || op == "copy" ? "" : (backward ? "backward" : "forward"),
                middle * scale,
                rate.best * scale,
                unit);
    if (!pass) std::printf("  %4.0f %%", rate.best * scale / (products ? product : copy) * 100);
    std::printf("\n");
  }
}

void print_collectives(const MeasuredMachine& machine) {
  std::printf("\ncollectives of %d ranks of this host\n",
              machine.collectives.empty() ? 0 : machine.collectives[0].ranks);
  for (const MeasuredCollective& each : machine.collectives) {
    std::printf("  %-17s %10s a piece  %10s  %7.2f GB/s  %.1f processors a rank\n",
                each.kind.c_str(),
                format_bytes(each.bytes).c_str(),
                format_ns(each.ns).c_str(),
                each.bytes / each.ns,
                each.cores);
  }
}

int calibrate_gpus(Arguments a, const CommandLine& line, const std::string& folder) {
  const auto gpus_here = static_cast<int>(gpu_devices().size());  // throws where there is none
  if (rank_environment().ranks_per_gpu > 1) {
    throw UsageError("VITRINE_RANKS_PER_GPU is set: GPUs are measured by one rank each; unset it");
  }
  if (a.ranks == 0) a.ranks = gpus_here;
  if (a.ranks > gpus_here) {
    throw DeviceError(
        format("--ranks %d: one GPU each is measured, this process can see %d: fewer "
               "--ranks, or look at CUDA_VISIBLE_DEVICES",
               a.ranks,
               gpus_here));
  }
  const int64_t start = now_ns();
  const MeasuredGpus gpus = a.ranks == 1
                                ? measure_gpus(nullptr, rank_environment(), a.quick)
                                : measured_gpus_from_json(measure_ranks(a, line), "measurement");
  set_compute_threads(effective_cpus());
  const MeasuredHost host = measure_host(folder, a.quick);
  write_text_file(a.out, gpu_profile_text(gpus, host));
  const double seconds = static_cast<double>(now_ns() - start) * 1e-9;
  if (a.json) {
    std::printf("%s\n",
                Json{{"profile", a.out},
                     {"seconds", seconds},
                     {"notes", Json::array()},
                     {"measured_gpus", measured_gpus_json(gpus)}}
                    .dump()
                    .c_str());
    return 0;
  }
  print_gpus(gpus, host);
  std::printf("%s written after %.1f s\n", a.out.c_str(), seconds);
  return 0;
}

int calibrate_cpus(Arguments a, const CommandLine& line, const std::string& folder) {
  const int cpus = effective_cpus(), most = std::max(8, kRanksAProcessor * cpus);
  if (a.ranks == 0) a.ranks = std::max(2, cpus);
  if (a.ranks < 2)
    throw UsageError("--ranks is at least 2: collectives are measured between ranks");
  if (a.ranks > most) {
    throw UsageError(
        format("--ranks %d: on %d processors at most %d can be measured", a.ranks, cpus, most));
  }
  const bool cuda = fs::exists("/dev/nvidiactl") || fs::exists("/proc/driver/nvidia");
  const int64_t start = now_ns();
  // Before this process has threads.
  MeasuredMachine machine = measured_from_json(measure_ranks(a, line), "measurement");
  set_compute_threads(cpus);
  machine.processor = processor_name();
  machine.cpus = cpus;
  DiskSpeed disk;
  const std::vector<MeasuredOperations> alone = measure_operations(a.quick, nullptr, [&] {
    machine.handoff_ns = measure_handoff_ns();
    disk = measure_disk(folder, int64_t{a.quick ? 16 : 64} << 20);
  });
  machine.operations.insert(machine.operations.end(), alone.begin(), alone.end());
  machine.disk_write_bytes_per_s = disk.write_bytes_per_s;
  machine.disk_read_bytes_per_s = disk.read_bytes_per_s;
  write_text_file(a.out, profile_text(machine));
  const double seconds = static_cast<double>(now_ns() - start) * 1e-9;
  const char* gpus_hint =
      "this machine has an NVIDIA driver: vitrine calibrate --device gpu --out gpu.json measures "
      "its GPUs, for vitrine plan --gpus";
  if (a.json) {
    std::printf("%s\n",
                Json{{"profile", a.out},
                     {"seconds", seconds},
                     {"notes", cuda ? Json::array({gpus_hint}) : Json::array()},
                     {"measured", measured_json(machine)}}
                    .dump()
                    .c_str());
    return 0;
  }
  std::printf("%s, %d processors\n", machine.processor.c_str(), cpus);
  for (const MeasuredOperations& table : machine.operations) print_operations(table);
  print_collectives(machine);
  std::printf("\nhand-over between threads %s; disk: writes %.2f GB/s, reads %.2f GB/s\n",
              format_ns(machine.handoff_ns).c_str(),
              disk.write_bytes_per_s * 1e-9,
              disk.read_bytes_per_s * 1e-9);
  if (cuda) std::printf("%s\n", gpus_hint);
  std::printf("%s written after %.1f s\n", a.out.c_str(), seconds);
  return 0;
}

int calibrate(const Arguments& a, const CommandLine& line) {
  const bool gpu = a.device == "gpu";
  if (!a.part.empty()) return gpu ? measure_gpu_as_rank(a, line) : measure_as_rank(a, line);
  if (rank_environment().size > 1) {
    throw UsageError(
        "vitrine calibrate starts its own ranks: run it once, not under a launcher (WORLD_SIZE is "
        "set)");
  }
  if (a.out.empty()) throw UsageError("--out is empty: give the name of a file");
  refuse_special_file(a.out);
  const fs::path parent = fs::absolute(fs::path(a.out)).parent_path();
  if (access(parent.c_str(), W_OK) != 0) {
    throw IoError("--out " + a.out + ": the folder " + parent.string() +
                  " does not exist or cannot be written to");
  }
  return gpu ? calibrate_gpus(a, line, parent.string()) : calibrate_cpus(a, line, parent.string());
}

}  // namespace

void add_calibrate(CLI::App& app, CommandAction& action, const CommandLine& line) {
  auto a = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand(
      "calibrate",
      "Measure this machine into a profile for vitrine plan: its CPU ranks (operations by shape, "
      "optimizer, collectives, disk) or its GPUs (products, passes over memory, collectives, host "
      "link, disk)");
  command->add_option("--out", a->out, "The profile")->capture_default_str();
  command->add_option("--device", a->device, "cpu: for plan RUN.json --ranks; gpu: for plan --gpus")
      ->check(CLI::IsMember({"cpu", "gpu"}))
      ->capture_default_str();
  command->add_option(
      "--ranks", a->ranks, "Local ranks (default: one a processor, at least 2; one a GPU)");
  command->add_flag("--quick", a->quick, "Fewer shapes, on CPU ranks f32 alone");
  command->add_flag("--json", a->json);
  command->add_option("--part", a->part)->group("");
  command->footer(
      "Examples:\n"
      "  vitrine calibrate --out profile.json\n"
      "  vitrine calibrate --device gpu --out gpu.json && vitrine plan run.json --gpus 1 --profile "
      "gpu.json");
  command->callback([a, &action, &line] { action = [a, &line] { return calibrate(*a, line); }; });
}

}  // namespace vitrine

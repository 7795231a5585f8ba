// vitrine doctor: what this machine can do for training, found by doing it.
#include <cstdio>
#include <memory>

#include "cli/commands.h"
#include "cli/terminal.h"
#include "core/format.h"
#include "core/json.h"
#include "gpu/probe.h"

namespace vitrine {

namespace {

const char* const kFooter =
    "Copies are in GB/s: within a GPU bytes read plus written, otherwise one way. Products are in\n"
    "TFLOP/s, checked against fp64 on the host before they are timed; one that is no faster than "
    "f32\n"
    "is called emulated.\n"
    "Exit code: 0 every GPU computes right, 1 none, or one that does not.\n"
    "Examples:\n"
    "  vitrine doctor gpu\n"
    "  vitrine doctor gpu --json | jq '.gpus[].precision'";

std::string known(const std::string& version) { return version.empty() ? "not found" : version; }

std::string product_text(const ProductProbe& p) {
  if (!p.refused.empty()) return format("  %-8s %s\n", p.dtype.c_str(), p.refused.c_str());
  const char* verdict = !p.right() ? "WRONG" : p.emulated ? "emulated" : "right";
  return format("  %-8s %7.1f TFLOP/s at %d^3, error %.1e (at most %.0e): %s\n",
                p.dtype.c_str(),
                p.flops_per_s * 1e-12,
                p.edge,
                p.error,
                p.tolerance,
                verdict);
}

std::string gpu_text(const GpuProbe& p) {
  std::string text = format("GPU %d: %s, architecture %d.%d, %d multiprocessors, %s free of %s\n",
                            p.gpu.index,
                            p.gpu.name.c_str(),
                            p.gpu.major,
                            p.gpu.minor,
                            p.gpu.multiprocessors,
                            format_bytes(static_cast<double>(p.free_bytes)).c_str(),
                            format_bytes(static_cast<double>(p.total_bytes)).c_str());
  if (p.copy_bytes_per_s > 0) {
    text += format("  copy     %7.1f GB/s within, %.1f from host, %.1f to host\n",
                   p.copy_bytes_per_s * 1e-9,
                   p.upload_bytes_per_s * 1e-9,
                   p.download_bytes_per_s * 1e-9);
  }
  for (const ProductProbe& product : p.products) text += product_text(product);
  if (!p.failure.empty()) return text + "  FAILED   " + p.failure + "\n";
  const std::string precision = choose_precision(p);
  return text + "  would compute in " +
         (precision.empty() ? "nothing: no product is right" : precision) + "\n";
}

std::string report_text(const ProbeReport& report) {
  std::string text = "driver CUDA " + known(report.driver) + ", runtime " + known(report.runtime) +
                     ", cuBLASLt " + known(report.cublaslt) + ", cuDNN " + known(report.cudnn) +
                     ", NCCL " + known(report.nccl) + "\n";
  for (const GpuProbe& gpu : report.gpus) text += gpu_text(gpu);
  if (!report.peers.empty())
    text += "between GPUs (GB/s, from row to column; * through the host)\n";
  for (const GpuProbe& from : report.gpus) {
    std::string row;
    for (const GpuProbe& to : report.gpus) {
      const PeerProbe* found = nullptr;
      for (const PeerProbe& peer : report.peers) {
        if (peer.from == from.gpu.index && peer.to == to.gpu.index) found = &peer;
      }
      row += found ? format(" %7.1f%s", found->bytes_per_s * 1e-9, found->access ? " " : "*")
                   : "       - ";
    }
    if (!report.peers.empty()) text += format("  GPU %-3d", from.gpu.index) + row + "\n";
  }
  return text;
}

Json report_json(const ProbeReport& report) {
  Json json{{"driver", report.driver},
            {"runtime", report.runtime},
            {"cublaslt", report.cublaslt},
            {"cudnn", report.cudnn},
            {"nccl", report.nccl},
            {"gpus", Json::array()},
            {"peers", Json::array()}};
  for (const GpuProbe& p : report.gpus) {
    Json gpu{{"index", p.gpu.index},
             {"name", p.gpu.name},
             {"architecture", format("%d.%d", p.gpu.major, p.gpu.minor)},
             {"multiprocessors", p.gpu.multiprocessors},
             {"free_bytes", p.free_bytes},
             {"total_bytes", p.total_bytes},
             {"copy_bytes_per_s", p.copy_bytes_per_s},
             {"upload_bytes_per_s", p.upload_bytes_per_s},
             {"download_bytes_per_s", p.download_bytes_per_s},
             {"failure", p.failure},
             {"precision", choose_precision(p)},
             {"products", Json::array()}};
    for (const ProductProbe& product : p.products) {
      gpu["products"].push_back({{"dtype", product.dtype},
                                 {"refused", product.refused},
                                 {"error", product.error},
                                 {"tolerance", product.tolerance},
                                 {"right", product.right()},
                                 {"emulated", product.emulated},
                                 {"edge", product.edge},
                                 {"flops_per_s", product.flops_per_s}});
    }
    json["gpus"].push_back(gpu);
  }
  for (const PeerProbe& peer : report.peers) {
    json["peers"].push_back({{"from", peer.from},
                             {"to", peer.to},
                             {"access", peer.access},
                             {"bytes_per_s", peer.bytes_per_s}});
  }
  return json;
}

int doctor_gpu(bool as_json) {
  const std::string why = why_no_gpu();
  if (!why.empty()) {
    if (as_json)
      std::printf("%s\n", Json{{"gpus", Json::array()}, {"reason", why}}.dump(1).c_str());
    print_error(why);
    return 1;
  }
  const ProbeReport report = probe_gpus();
  std::fputs(as_json ? (report_json(report).dump(1) + "\n").c_str() : report_text(report).c_str(),
             stdout);
  for (const GpuProbe& gpu : report.gpus) {
    if (!gpu.failure.empty() || choose_precision(gpu).empty()) return 1;
    for (const ProductProbe& product : gpu.products) {
      if (product.refused.empty() && !product.right()) return 1;
    }
  }
  return 0;
}

}  // namespace

void add_doctor(CLI::App& app, CommandAction& action) {
  CLI::App* doctor = app.add_subcommand("doctor", "Try out what training on this machine needs");
  doctor->require_subcommand(1);
  CLI::App* gpu = doctor->add_subcommand(
      "gpu", "Memory, copies, products by dtype, peers and library versions of every GPU");
  auto as_json = std::make_shared<bool>(false);
  gpu->add_flag("--json", *as_json, "Print JSON for programs instead of text");
  gpu->footer(kFooter);
  gpu->callback([as_json, &action] { action = [as_json] { return doctor_gpu(*as_json); }; });
}

}  // namespace vitrine

// A calibration of GPUs, as text.
#include "cli/calibration_text.h"

#include <cstdio>

#include "core/format.h"
#include "plan/fit_gpus.h"

namespace vitrine {
namespace {

void print_products(const MeasuredGpus& gpus) {
  std::printf("\nproducts back to back, forward and backward (rows x in x out)\n");
  for (const MeasuredGpus::Product& each : gpus.products) {
    const double ns = each.forward_ns + each.backward_ns;
    std::printf("  %-5s %6.0f x %5.0f x %5.0f  %7.1f TFLOP/s%s\n",
                each.fp8 ? "fp8" : "bf16",
                each.rows,
                each.in,
                each.out,
                6 * each.rows * each.in * each.out / ns * 1e-3,
                each.fp8 ? ", roundings with it" : "");
  }
}

}  // namespace

void print_gpus(const MeasuredGpus& gpus, const MeasuredHost& host) {
  const FittedGpus fit = fit_gpus(gpus);
  std::printf("%d x %s, %d multiprocessors, %s\n",
              gpus.count,
              gpus.name.c_str(),
              gpus.multiprocessors,
              format_bytes(gpus.memory_bytes).c_str());
  std::printf("one large product:");
  for (const MeasuredGpus::Peak& each : gpus.peaks)
    std::printf(" %s %.1f", each.dtype.c_str(), each.flops_per_s * 1e-12);
  std::printf(
      " TFLOP/s\ncopies: %.0f GB/s within (read plus written), %.1f from host, %.1f to "
      "host\n",
      gpus.copy_bytes_per_s * 1e-9,
      gpus.upload_bytes_per_s * 1e-9,
      gpus.download_bytes_per_s * 1e-9);
  print_products(gpus);
  double bytes = 0, ns = 0;
  for (const MeasuredGpus::Pass& each : gpus.passes) {
    bytes += each.bytes;
    ns += each.ns;
  }
  if (ns > 0) std::printf("\n%zu passes over memory: %.0f GB/s\n", gpus.passes.size(), bytes / ns);
  if (!gpus.collectives.empty()) std::printf("\ncollectives of %d GPUs\n", gpus.count);
  for (const MeasuredGpus::Collective& each : gpus.collectives) {
    std::printf("  %-15s %10s  %10s  %7.1f GB/s a GPU and direction\n",
                each.kind.c_str(),
                format_bytes(each.bytes).c_str(),
                format_ns(each.ns).c_str(),
                each.bytes / each.ns * (gpus.count - 1) / gpus.count);
  }
  std::printf(
      "\nan operation takes the host %s; its memory copies at %.0f GB/s; disk: writes %.2f "
      "GB/s, reads %.2f GB/s\n",
      format_ns(gpus.issue_ns).c_str(),
      host.bytes_per_s * 1e-9,
      host.disk.write_bytes_per_s * 1e-9,
      host.disk.read_bytes_per_s * 1e-9);
  std::printf("constants: products %.3f of the peak (alone %.3f), passes %.3f of the bandwidth",
              fit.matmul,
              fit.ceiling,
              fit.memory);
  if (fit.narrow_share > 0) std::printf(", fp8 %.3f of bf16's share", fit.narrow_share);
  if (fit.link_bytes_per_s > 0) std::printf(", link %.0f GB/s", fit.link_bytes_per_s * 1e-9);
  if (gpus.count > 1) {
    std::printf(", collectives %.3f of the model's rate by NCCL, %.3f by copies",
                fit.communication,
                fit.copies);
  }
  std::printf("\n%s\n",
              fit.base.empty() ? "a card of its own: no profile of it is shipped"
                               : ("over the profile " + fit.base).c_str());
}

}  // namespace vitrine

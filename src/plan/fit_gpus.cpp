// Sums of predicted over sums of measured times.
#include "plan/fit_gpus.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "machines/cluster.h"
#include "plan/collective_time.h"
#include "plan/op_time.h"

namespace vitrine {
namespace {

// Smaller messages are latency's.
constexpr double kLargeMessage = 32 << 20;
constexpr int kHopper = 90;
constexpr double kWholeCard = 0.95;

double share_of(double predicted_ns, double measured_ns) {
  return measured_ns > 0 ? std::min(1.0, predicted_ns / measured_ns) : 0;
}

double peak_of(const MeasuredGpus& measured, const char* dtype) {
  for (const MeasuredGpus::Peak& each : measured.peaks) {
    if (each.dtype == dtype) return each.flops_per_s;
  }
  return 0;
}

// The first, which others of the card build upon.
std::string profile_of(const Accelerator& card) {
  for (const std::string& name : card_profiles()) {
    if (std::strcmp(make_cluster(name).card->name, card.name) == 0) return name;
  }
  return "";
}

CardModel model_of(const Cluster& cluster, Precision precision) {
  ClusterStrategy strategy;
  strategy.precision = precision;
  strategy.own_engine = true;
  return card_model(cluster, strategy);
}

double products_ns(const CardModel& card, const MeasuredGpus::Product& p) {
  return matmul_ns(card, p.rows, p.out, p.in, 1, p.fp8) +
         matmul_ns(card, p.rows, p.in, p.out, 1, p.fp8) +
         matmul_ns(card, p.out, p.in, p.rows, 1, p.fp8);
}

// Of operands from bf16, as op_time() prices them in this engine: largest magnitude, then copies.
double roundings_ns(const CardModel& card, const MeasuredGpus::Product& p) {
  constexpr double kBytes = 6;
  return memory_ns(card, kBytes * p.rows * p.in) + memory_ns(card, kBytes * p.in * p.out) +
         memory_ns(card, kBytes * p.rows * p.out);
}

void fit_products(const MeasuredGpus& measured, Cluster& cluster, FittedGpus& fit) {
  Efficiency& e = cluster.efficiency;
  double passes = 0, passes_took = 0;
  e.memory = 1;
  for (const MeasuredGpus::Pass& each : measured.passes) {
    passes += memory_ns(model_of(cluster, Precision::kBF16), each.bytes);
    passes_took += each.ns;
  }
  fit.memory = share_of(passes, passes_took);
  if (fit.memory > 0) e.memory = fit.memory;

  double products = 0, products_took = 0;
  e.matmul = 1;
  for (const MeasuredGpus::Product& each : measured.products) {
    if (each.fp8) continue;
    products += products_ns(model_of(cluster, Precision::kBF16), each);
    products_took += each.forward_ns + each.backward_ns;
  }
  fit.matmul = share_of(products, products_took);
  if (fit.matmul > 0) e.matmul = fit.matmul;

  double narrow = 0, narrow_took = 0;
  if (fit.card.fp8_flops_per_s <= 0) return;
  e.narrow_share = 1;
  const CardModel card = model_of(cluster, Precision::kF8);
  for (const MeasuredGpus::Product& each : measured.products) {
    if (!each.fp8) continue;
    narrow += products_ns(card, each);
    narrow_took += each.forward_ns + each.backward_ns - roundings_ns(card, each);
  }
  fit.narrow_share = share_of(narrow, narrow_took);
}

// Above 1 too: of the nominal link.
double messages_share(const MeasuredGpus& measured,
                      const Cluster& cluster,
                      const char* gather,
                      const char* reduce) {
  double predicted = 0, took = 0;
  for (const MeasuredGpus::Collective& each : measured.collectives) {
    const bool gathers = each.kind == gather;
    if ((!gathers && each.kind != reduce) || each.bytes < kLargeMessage) continue;
    predicted +=
        collective_ns(cluster,
                      gathers ? PlanCollective::kAllGather : PlanCollective::kReduceScatter,
                      each.bytes,
                      {measured.count, measured.count});
    took += each.ns;
  }
  return took > 0 ? predicted / took : 0;
}

void fit_links(const MeasuredGpus& measured, Cluster& cluster, FittedGpus& fit) {
  if (measured.count < 2) return;
  cluster.efficiency.communication = 1;
  const double nccl = messages_share(measured, cluster, "all_gather", "reduce_scatter");
  const double copies = messages_share(measured, cluster, "gather_shared", "reduce_shared");
  const double best = std::max(nccl, copies);
  const bool known = !fit.base.empty() || best <= 0;
  if (!known) fit.link_bytes_per_s = cluster.link_bytes_per_s * best;
  fit.communication = known ? nccl : nccl / best;
  fit.copies = known ? copies : copies / best;
}

}  // namespace

FittedGpus fit_gpus(const MeasuredGpus& measured) {
  FittedGpus fit;
  const double bf16 = peak_of(measured, "bf16");
  if (bf16 <= 0 || measured.copy_bytes_per_s <= 0) {
    throw ConfigError("calibrate: " + measured.name +
                      " computed nothing in bf16, which plans are made of; vitrine doctor gpu says "
                      "what it can do");
  }
  const Accelerator* known = find_accelerator(measured.name);
  // Cards report a little more than the GB that they are sold with.
  const bool whole =
      known && measured.memory_bytes > kWholeCard * static_cast<double>(known->memory_bytes);
  if (whole) fit.base = profile_of(*known);
  Cluster cluster;
  if (!fit.base.empty()) {
    cluster = make_cluster(fit.base);
    fit.card = *cluster.card;
  } else {
    fit.card.name = fit.card.link_name = fit.card.source = "";
    fit.card.memory_bytes = static_cast<int64_t>(measured.memory_bytes);
    fit.card.bf16_flops_per_s = bf16;
    fit.card.fp16_flops_per_s = peak_of(measured, "f16");
    fit.card.fp8_flops_per_s = peak_of(measured, "f8_e4m3");
    fit.card.tf32_flops_per_s = peak_of(measured, "tf32");
    fit.card.fp32_flops_per_s = peak_of(measured, "f32");
    fit.card.memory_bytes_per_s = measured.copy_bytes_per_s;
    // Of a link nothing is known: the host's, until collectives say more.
    cluster.link_bytes_per_s = measured.host_link_bytes_per_s();
    cluster.card = &fit.card;
  }
  const Accelerator& card = fit.card;
  fit.ceiling = std::min(1.0, bf16 / card.bf16_flops_per_s);
  if (card.fp8_flops_per_s > 0)
    fit.narrow_ceiling = std::min(1.0, peak_of(measured, "f8_e4m3") / card.fp8_flops_per_s);
  // As the profile will have it.
  cluster.pcie_bytes_per_s = measured.host_link_bytes_per_s();
  cluster.gpus = cluster.gpus_per_node = cluster.island = measured.count;
  cluster.multiprocessors = measured.multiprocessors;
  cluster.efficiency.power = 1;
  // Own persistent kernels, which end in swiglu (ops/gpu/wgmma_swiglu.cu), are Hopper's.
  fit.swiglu_in_products = measured.architecture == kHopper;
  if (fit.swiglu_in_products) cluster.efficiency.fill = 0;
  fit.fill = cluster.efficiency.fill;
  fit_products(measured, cluster, fit);
  fit_links(measured, cluster, fit);
  return fit;
}

}  // namespace vitrine

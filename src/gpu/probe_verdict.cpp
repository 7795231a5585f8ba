// What a probe's numbers mean.
#include "gpu/probe.h"

namespace vitrine {

namespace {

const ProductProbe* find(const std::vector<ProductProbe>& products, const std::string& dtype) {
  for (const ProductProbe& product : products) {
    if (product.dtype == dtype) return &product;
  }
  return nullptr;
}

}  // namespace

void judge_products(std::vector<ProductProbe>& products) {
  const ProductProbe* f32 = find(products, "f32");
  if (!f32 || !f32->right()) return;
  const double bound = 1.1 * f32->flops_per_s;
  for (ProductProbe& product : products) {
    product.emulated =
        product.dtype != "f32" && product.refused.empty() && product.flops_per_s < bound;
  }
}

std::string choose_precision(const GpuProbe& probe) {
  for (const char* dtype : {"bf16", "f16", "f32"}) {
    const ProductProbe* product = find(probe.products, dtype);
    if (product && product->native()) return dtype;
  }
  return "";
}

}  // namespace vitrine

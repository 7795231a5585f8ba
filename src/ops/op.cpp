// Attributes, the registry of operations, and a backend's table.
#include "ops/op.h"

#include <map>
#include <mutex>

#include "core/error.h"
#include "core/format.h"
#include "ops/contracts.h"

namespace vitrine {
namespace {

struct Registry {
  std::mutex mutex;
  std::map<std::string, OpDef, std::less<>>
      ops;  // nodes stay where they are: find_op gives references

  Registry() {
    using namespace contracts;
    for (const auto& family :
         {matmul_ops(), norm_ops(), attention_ops(), pointwise_ops(), loss_ops(), layout_ops()}) {
      for (const OpDef& op : family) ops.emplace(op.name, op);
    }
  }
};

Registry& registry() {
  static Registry instance;
  return instance;
}

std::string suggestion(std::string_view name, const std::vector<std::string>& known) {
  const std::string near = nearest_name(name, known);
  return near.empty() ? "" : "; did you mean '" + near + "'?";
}

}  // namespace

void Attrs::set(const std::string& name, double value) {
  for (auto& [key, old] : values_) {
    if (key == name) {
      old = value;
      return;
    }
  }
  values_.emplace_back(name, value);
}

bool Attrs::has(std::string_view name) const {
  for (const auto& [key, value] : values_) {
    if (key == name) return true;
  }
  return false;
}

double Attrs::number(std::string_view name) const {
  for (const auto& [key, value] : values_) {
    if (key == name) return value;
  }
  std::vector<std::string> present;
  for (const auto& [key, value] : values_) present.push_back(key);
  throw ShapeError("attribute '" + std::string(name) +
                   "' is missing; present: " + (present.empty() ? "none" : join(present, ", ")));
}

double Attrs::number(std::string_view name, double fallback) const {
  for (const auto& [key, value] : values_) {
    if (key == name) return value;
  }
  return fallback;
}

const OpDef& find_op(std::string_view name) {
  Registry& r = registry();
  {
    const std::lock_guard lock(r.mutex);
    const auto found = r.ops.find(name);
    if (found != r.ops.end()) return found->second;
  }
  throw ConfigError("unknown operation '" + std::string(name) + "'" + suggestion(name, op_names()));
}

void register_op(const OpDef& op) {
  if (op.name.empty() || !op.infer || !op.forward_cost || !op.backward_cost) {
    throw ConfigError("operation '" + op.name +
                      "' needs a name, infer, forward_cost and backward_cost");
  }
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  if (!r.ops.emplace(op.name, op).second) {
    throw ConfigError("operation '" + op.name + "' is registered already; choose another name");
  }
}

std::vector<std::string> op_names() {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  std::vector<std::string> names;
  for (const auto& [name, op] : r.ops) names.push_back(name);
  return names;
}

void Backend::add(std::string op, OpKernels kernels) {
  for (auto& [name, row] : rows_) {
    if (name == op) {
      row = kernels;
      return;
    }
  }
  rows_.emplace_back(std::move(op), kernels);
}

const OpKernels& Backend::kernels(std::string_view op) const {
  for (const auto& [name, row] : rows_) {
    if (name == op) return row;
  }
  std::vector<std::string> known;
  for (const auto& [name, row] : rows_) known.push_back(name);
  throw ConfigError("backend '" + name_ + "' has no kernels for operation '" + std::string(op) +
                    "'" + suggestion(op, known));
}

bool Backend::has(std::string_view op) const {
  for (const auto& [name, row] : rows_) {
    if (name == op) return true;
  }
  return false;
}

const PairedOps* Backend::pair(std::string_view first, std::string_view second) const {
  for (const PairedOps& pair : pairs_) {
    if (pair.first == first && pair.second == second) return &pair;
  }
  return nullptr;
}

}  // namespace vitrine

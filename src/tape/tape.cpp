// Recording of a block's tape.
#include "tape/tape.h"

#include "core/error.h"
#include "core/format.h"

namespace vitrine {
namespace {

std::vector<std::string> names_of(const std::vector<PortType>& ports) {
  std::vector<std::string> names;
  for (const PortType& port : ports) names.push_back(port.name);
  return names;
}

int index_of(const std::vector<PortType>& ports, std::string_view name) {
  for (size_t i = 0; i < ports.size(); ++i) {
    if (ports[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

}  // namespace

TapeBuilder::TapeBuilder(std::string block,
                         std::vector<PortType> inputs,
                         std::vector<PortType> parameters)
    : block_(std::move(block)) {
  tape_.inputs_ = std::move(inputs);
  tape_.parameters_ = std::move(parameters);
  const auto add = [&](const std::vector<PortType>& ports, SlotKind kind) {
    for (size_t i = 0; i < ports.size(); ++i) {
      TapeSlot slot;
      slot.kind = kind;
      slot.type = ports[i].type;
      slot.index = static_cast<int>(i);
      slot.requires_grad = ports[i].requires_grad;
      tape_.slots_.push_back(slot);
    }
  };
  add(tape_.inputs_, SlotKind::kInput);
  add(tape_.parameters_, SlotKind::kParameter);
}

Value TapeBuilder::input(std::string_view port) const {
  const int i = index_of(tape_.inputs_, port);
  if (i < 0) {
    throw ConfigError("block " + block_ + ": no input port \"" + std::string(port) +
                      "\" is connected; connected: " + join(names_of(tape_.inputs_), ", "));
  }
  return {i};
}

bool TapeBuilder::has_input(std::string_view port) const {
  return index_of(tape_.inputs_, port) >= 0;
}

Value TapeBuilder::parameter(std::string_view name) const {
  const int i = index_of(tape_.parameters_, name);
  if (i < 0) {
    throw ConfigError("block " + block_ + ": no parameter \"" + std::string(name) +
                      "\" is declared; declared: " + join(names_of(tape_.parameters_), ", "));
  }
  return {tape_.parameter_slot(i)};
}

Value TapeBuilder::declare_parameter(PortType parameter) {
  TapeSlot slot;
  slot.kind = SlotKind::kParameter;
  slot.type = parameter.type;
  slot.index = static_cast<int>(tape_.parameters_.size());
  slot.requires_grad = parameter.requires_grad;
  tape_.parameters_.push_back(std::move(parameter));
  tape_.slots_.push_back(slot);
  return {static_cast<int>(tape_.slots_.size()) - 1};
}

bool TapeBuilder::has_parameter(std::string_view name) const {
  return index_of(tape_.parameters_, name) >= 0;
}

const TensorType& TapeBuilder::type(Value value) const {
  VITRINE_ASSERT(value);
  return tape_.slots_[static_cast<size_t>(value.slot)].type;
}

std::vector<Value> TapeBuilder::call(std::string_view op_name,
                                     const Attrs& attrs,
                                     const std::vector<Value>& in) {
  const OpDef& op = find_op(op_name);
  TapeNode node;
  node.op = &op;
  node.attrs = attrs;
  for (const Value value : in) node.in.push_back(value.slot);
  while (!node.in.empty() && node.in.back() < 0) node.in.pop_back();
  const int count = static_cast<int>(node.in.size());
  if (count < op.min_inputs || count > op.max_inputs) {
    throw ShapeError("block " + block_ + ": " + op.name + " takes " +
                     std::to_string(op.min_inputs) + " to " + std::to_string(op.max_inputs) +
                     " inputs, got " + std::to_string(count));
  }
  OpSignature signature;
  try {
    signature = op.infer(attrs, tape_.input_types(node));
  } catch (const ShapeError& error) {
    throw ShapeError("block " + block_ + ": " + error.what());
  }
  bool requires_grad = false;
  for (int i = 0; i < count; ++i) {
    const int slot = node.in[static_cast<size_t>(i)];
    if (slot >= 0 && (op.differentiable >> i & 1u)) {
      requires_grad = requires_grad || tape_.slots_[static_cast<size_t>(slot)].requires_grad;
    }
  }
  const int node_index = static_cast<int>(tape_.nodes_.size());
  const auto add_slot = [&](const TensorType& type, SlotKind kind) {
    TapeSlot slot;
    slot.kind = kind;
    slot.type = type;
    slot.producer = node_index;
    slot.requires_grad = kind == SlotKind::kValue && requires_grad;
    tape_.slots_.push_back(slot);
    return static_cast<int>(tape_.slots_.size()) - 1;
  };
  std::vector<Value> values;
  for (const TensorType& type : signature.out) {
    node.out.push_back(add_slot(type, SlotKind::kValue));
    values.push_back({node.out.back()});
  }
  for (const TensorType& type : signature.saved) {
    node.saved.push_back(add_slot(type, SlotKind::kSaved));
  }
  node.forward_workspace = signature.forward_workspace;
  node.backward_workspace = signature.backward_workspace;
  node.needs_backward = requires_grad;
  tape_.nodes_.push_back(std::move(node));
  return values;
}

void TapeBuilder::output(const std::string& port, Value value) {
  TapeSlot& slot = tape_.slots_[static_cast<size_t>(value.slot)];
  if (slot.kind != SlotKind::kValue || slot.output >= 0) {
    throw ConfigError("block " + block_ + ": output port \"" + port +
                      (slot.output >= 0
                           ? "\" names a value that is another output already"
                           : "\" passes an input through; connect that port directly"));
  }
  slot.output = static_cast<int>(tape_.outputs_.size());
  tape_.outputs_.push_back({port, slot.type, slot.requires_grad});
}

Tape TapeBuilder::finish() {
  if (tape_.outputs_.empty()) throw ConfigError("block " + block_ + " has no output port");
  tape_.plan();
  return std::move(tape_);
}

int Tape::parameter_slot(int parameter) const {
  for (size_t s = inputs_.size(); s < slots_.size(); ++s) {
    if (slots_[s].kind == SlotKind::kParameter && slots_[s].index == parameter) {
      return static_cast<int>(s);
    }
  }
  return -1;
}

std::vector<TensorType> Tape::input_types(const TapeNode& node) const {
  std::vector<TensorType> types;
  for (const int slot : node.in) {
    types.push_back(slot < 0 ? TensorType{} : slots_[static_cast<size_t>(slot)].type);
  }
  return types;
}

}  // namespace vitrine

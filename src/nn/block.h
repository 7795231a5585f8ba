// The block: the one unit of sharding, recomputation, placement and tracing; all that a model
// author writes.
#pragma once

#include <string>
#include <vector>

#include "core/shape.h"
#include "tape/tape.h"

namespace vitrine {

// How a parameter starts. Values are a pure function of (seed, full name, element).
struct Init {
  enum class Kind : uint8_t { kZeros, kConstant, kNormal, kUniform } kind = Kind::kNormal;
  double value = 0.02;  // constant; standard deviation; half-width
  static Init zeros() { return {Kind::kZeros, 0}; }
  static Init constant(double v) { return {Kind::kConstant, v}; }
  static Init normal(double std) { return {Kind::kNormal, std}; }
  static Init uniform(double half_width) { return {Kind::kUniform, half_width}; }
};

struct ParameterSpec {
  std::string name;  // within the block; the full name is "<block>.<name>"
  Shape shape;
  Init init;
  bool decay = true;    // weight decay applies (not to norms, biases and embeddings of positions)
  bool frozen = false;  // no gradient and no optimizer state, at any stage
  std::string tied_to;  // full name of the owner's parameter; shape must agree
};

class ParameterList {
 public:
  ParameterSpec& add(std::string name, Shape shape, Init init, bool decay = true);
  // Uses the parameter of an earlier block under a local name.
  void tie(std::string name, Shape shape, std::string owner_full_name);
  const std::vector<ParameterSpec>& specs() const { return specs_; }
  std::vector<ParameterSpec>& specs() { return specs_; }

 private:
  std::vector<ParameterSpec> specs_;
};

class Block {
 public:
  virtual ~Block() = default;
  // Blocks of equal kind() record equal tapes for equal ports, so it carries the block's
  // configuration.
  virtual std::string kind() const = 0;
  virtual void declare(ParameterList& parameters) const = 0;
  // Takes ports and parameters by name, calls operations, names outputs. Runs when shapes are
  // known.
  virtual void forward(TapeBuilder& tape) const = 0;
};

}  // namespace vitrine

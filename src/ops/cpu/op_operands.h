// One operation with operands of given shapes, to be run and timed alone.
#pragma once

#include <string>
#include <vector>

#include "core/buffer.h"
#include "ops/op.h"

namespace vitrine {

struct OpCase {
  std::string op;
  Attrs attrs;
  std::vector<Shape> shapes;
  int ids = -1;  // the input that holds ids below `vocabulary`
  int64_t vocabulary = 0;
};

// Owns every operand of a case, inputs and incoming gradients filled with random values.
class OpOperands {
 public:
  // Throws what the operation's infer throws. `op_case` must outlive this.
  OpOperands(const OpCase& op_case, DType dtype);

  // A backward follows a forward, whose saved values it may overwrite.
  void run(const Backend& backend, bool backward);
  Cost cost(bool backward) const;
  const std::vector<TensorType>& types() const { return types_; }
  int64_t bytes() const { return ledger_.current(); }

 private:
  TensorView make(const TensorType& type);

  MemoryLedger ledger_;
  const OpCase& case_;
  const OpDef& op_;
  std::vector<Buffer> buffers_;
  std::vector<TensorType> types_;
  std::vector<TensorView> in_, out_, saved_, dout_;
  std::vector<GradView> din_;
  void* workspace_ = nullptr;
};

}  // namespace vitrine

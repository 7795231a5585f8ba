// A model: blocks joined by named ports into a directed acyclic graph, with losses and named
// results.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "nn/block.h"

namespace vitrine {

// Where an input port's value comes from: "<block>.<port>" of an earlier block, or "batch.<name>".
// A detached connection passes the value and no gradient.
struct PortSource {
  std::string from;
  bool detach = false;
  PortSource(const char* source) : from(source) {}
  PortSource(std::string source, bool detached = false)
      : from(std::move(source)), detach(detached) {}
};

struct ModelBlock {
  std::string name;
  std::unique_ptr<Block> block;
  std::vector<std::pair<std::string, PortSource>> inputs;  // (port, source)
};

struct LossTerm {
  std::string from;  // "<block>.<port>", a [1] value
  double weight = 1;
};

// One micro-batch's tensors, by name; the first dimension is the micro-batch.
using BatchTypes = std::vector<std::pair<std::string, TensorType>>;

// Blocks run in the order in which they were added; a decoder is stem, N x body, head.
class Model {
 public:
  void add(std::string name,
           std::unique_ptr<Block> block,
           std::vector<std::pair<std::string, PortSource>> inputs);
  void add_loss(std::string from, double weight = 1) {
    losses_.push_back({std::move(from), weight});
  }
  // A value that callers may read after a forward under a name of its own ("prediction").
  void add_result(std::string name, std::string from) {
    results_[std::move(name)] = std::move(from);
  }

  const std::vector<ModelBlock>& blocks() const { return blocks_; }
  const std::vector<LossTerm>& losses() const { return losses_; }
  const std::map<std::string, std::string>& results() const { return results_; }

  // Shown by `explain`, logs and reports, e.g. "decoder 4 x 256".
  std::string description;
  // What one sample is counted in, e.g. {"tokens", 256} or {"frames", 8}.
  std::string unit = "samples";
  double units_per_sample = 1;

 private:
  std::vector<ModelBlock> blocks_;
  std::vector<LossTerm> losses_;
  std::map<std::string, std::string> results_;
};

// Elements [begin, begin + count) of a parameter's starting value, in row-major order, as fp32.
void initial_values(const Init& init,
                    uint64_t seed,
                    const std::string& full_name,
                    int64_t begin,
                    int64_t count,
                    float* out);

}  // namespace vitrine

// A block that runs another block's forward again with that block's parameters.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "nn/block.h"

namespace vitrine {

// For graphs that are unrolled: pass 1, 2, ... of a block own nothing, so the parameters are
// stored, reduced and updated once. `inner` must declare what `owner`'s block declares.
class TiedTwin : public Block {
 public:
  TiedTwin(std::unique_ptr<Block> inner, std::string owner)
      : inner_(std::move(inner)), owner_(std::move(owner)) {}
  std::string kind() const override { return inner_->kind(); }
  void declare(ParameterList& parameters) const override {
    ParameterList own;
    inner_->declare(own);
    for (const ParameterSpec& spec : own.specs()) {
      parameters.tie(
          spec.name, spec.shape, spec.tied_to.empty() ? owner_ + "." + spec.name : spec.tied_to);
    }
  }
  void forward(TapeBuilder& tape) const override { inner_->forward(tape); }

 private:
  std::unique_ptr<Block> inner_;
  std::string owner_;
};

}  // namespace vitrine

// Joining of blocks into a model.
#include "nn/model.h"

#include "core/error.h"

namespace vitrine {

void Model::add(std::string name,
                std::unique_ptr<Block> block,
                std::vector<std::pair<std::string, PortSource>> inputs) {
  if (name.empty() || name == "batch" || name.find('/') != std::string::npos) {
    throw ConfigError("a block cannot be called \"" + name +
                      "\": names are not empty, not \"batch\", and hold no '/'");
  }
  for (const ModelBlock& other : blocks_) {
    if (other.name == name) throw ConfigError("two blocks are called \"" + name + "\"");
  }
  blocks_.push_back({std::move(name), std::move(block), std::move(inputs)});
}

}  // namespace vitrine

// The parameters of a model in units of sharding, and how a unit is cut over the ranks of a group.
#pragma once

#include <string>
#include <vector>

#include "nn/model.h"
#include "schedule/strategy.h"

namespace vitrine {

// Shard boundaries are multiples of this many elements, at every stage and world size, and norms
// are summed over chunks of this many; so that sharding never changes a sum.
constexpr int64_t kShardChunk = 64;

struct UnitParameter {
  std::string name;  // full
  Shape shape;
  Init init;
  bool decay = true;
  int64_t offset = 0;  // first element within the unit
  int64_t elements = 0;
};

// Parameters of one block that are gathered, reduced and updated together: one flat buffer in
// memory.
struct Unit {
  std::string name;  // "body.3", "body.3.persistent", "body.3.frozen"
  int block = -1;    // the owner
  bool frozen = false;
  bool persistent = false;  // small, or named so: never sharded as parameters
  std::vector<UnitParameter> parameters;
  int64_t elements = 0;    // without padding
  std::vector<int> users;  // blocks that read it, ascending; the owner is the first
};

struct ParameterUse {
  int unit = -1, parameter = -1;
};

struct ParameterTable {
  std::vector<Unit> units;
  std::vector<std::vector<ParameterUse>> uses;  // [block][declared parameter]
  int64_t total_elements = 0, trainable_elements = 0;
  const UnitParameter& of(ParameterUse use) const {
    return units[static_cast<size_t>(use.unit)].parameters[static_cast<size_t>(use.parameter)];
  }
};

// Throws ConfigError for duplicate names, ties to unknown parameters or other shapes.
ParameterTable make_parameter_table(const Model& model, const Strategy& strategy);

// Rank `index` of `count` holds elements [begin, end) of a unit; `padded` (equal for all) are
// allocated.
struct ShardRange {
  int64_t begin = 0, end = 0;
  int64_t padded = 0;
  int64_t size() const { return end - begin; }
};
ShardRange shard_range(int64_t unit_elements, int index, int count);
// Elements that a full unit occupies when `count` ranks share it: count * padded shard.
int64_t padded_elements(int64_t unit_elements, int count);

}  // namespace vitrine

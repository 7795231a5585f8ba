// Parameter tables and shard boundaries.
#include "schedule/parameters.h"

#include <algorithm>
#include <map>

#include "core/error.h"
#include "core/format.h"

namespace vitrine {
namespace {

bool matches(const std::string& name, const std::vector<std::string>& patterns) {
  for (const std::string& pattern : patterns) {
    if (!pattern.empty() && pattern.back() == '*') {
      if (name.compare(0, pattern.size() - 1, pattern, 0, pattern.size() - 1) == 0) return true;
    } else if (name == pattern) {
      return true;
    }
  }
  return false;
}

void check_patterns(const char* key,
                    const std::vector<std::string>& patterns,
                    const std::vector<std::string>& names) {
  for (const std::string& pattern : patterns) {
    const bool found = std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      return matches(name, {pattern});
    });
    if (found) continue;
    const std::string nearest = nearest_name(pattern, names);
    throw ConfigError(std::string(key) + ": \"" + pattern + "\" matches no parameter; " +
                      (nearest.empty()
                           ? "names are like \"" + names.front() + "\" and \"" + names.back() + "\""
                           : "the nearest is \"" + nearest + "\""));
  }
}

}  // namespace

ParameterTable make_parameter_table(const Model& model, const Strategy& strategy) {
  ParameterTable table;
  std::map<std::string, ParameterUse> by_name;
  for (size_t b = 0; b < model.blocks().size(); ++b) {
    const ModelBlock& block = model.blocks()[b];
    ParameterList list;
    block.block->declare(list);
    table.uses.emplace_back(list.specs().size());
    int unit_of[2][2] = {{-1, -1}, {-1, -1}};
    // Parameters whose size is a multiple of the chunk go first, so that the large ones stay
    // aligned.
    std::vector<size_t> order;
    for (const bool aligned : {true, false}) {
      for (size_t i = 0; i < list.specs().size(); ++i) {
        if ((list.specs()[i].shape.elements() % kShardChunk == 0) == aligned) order.push_back(i);
      }
    }
    for (const size_t i : order) {
      const ParameterSpec& spec = list.specs()[i];
      if (!spec.tied_to.empty()) {
        const auto owner = by_name.find(spec.tied_to);
        if (owner == by_name.end() ||
            table.units[static_cast<size_t>(owner->second.unit)].block == static_cast<int>(b)) {
          throw ConfigError("block " + block.name + ": " + spec.name + " is tied to \"" +
                            spec.tied_to + "\", which no earlier block has");
        }
        if (!(table.of(owner->second).shape == spec.shape)) {
          throw ShapeError("block " + block.name + ": " + spec.name + " " + spec.shape.str() +
                           " is tied to " + spec.tied_to + " of another shape " +
                           table.of(owner->second).shape.str());
        }
        table.uses[b][i] = owner->second;
        auto& users = table.units[static_cast<size_t>(owner->second.unit)].users;
        if (users.back() != static_cast<int>(b)) users.push_back(static_cast<int>(b));
        continue;
      }
      const std::string name = block.name + "." + spec.name;
      const bool frozen = spec.frozen || matches(name, strategy.frozen);
      const int64_t elements = spec.shape.elements();
      const bool persistent =
          strategy.shard.parameters &&
          (elements <= strategy.persistence_threshold || matches(name, strategy.persistent));
      int& unit_index = unit_of[frozen][persistent];
      if (unit_index < 0) {
        unit_index = static_cast<int>(table.units.size());
        Unit unit;
        unit.name = block.name + (persistent ? ".persistent" : "") + (frozen ? ".frozen" : "");
        unit.block = static_cast<int>(b);
        unit.frozen = frozen;
        unit.persistent = persistent;
        unit.users = {static_cast<int>(b)};
        table.units.push_back(std::move(unit));
      }
      Unit& unit = table.units[static_cast<size_t>(unit_index)];
      const ParameterUse use{unit_index, static_cast<int>(unit.parameters.size())};
      if (!by_name.emplace(name, use).second) {
        throw ConfigError("block " + block.name + " declares two parameters called " + spec.name);
      }
      unit.parameters.push_back({name, spec.shape, spec.init, spec.decay, unit.elements, elements});
      unit.elements += elements;
      table.uses[b][i] = use;
      table.total_elements += elements;
      if (!frozen) table.trainable_elements += elements;
    }
  }
  std::vector<std::string> names;
  for (const auto& [name, use] : by_name) names.push_back(name);
  check_patterns("frozen", strategy.frozen, names);
  check_patterns("persistent", strategy.persistent, names);
  return table;
}

ShardRange shard_range(int64_t unit_elements, int index, int count) {
  ShardRange range;
  if (count == 1) return {0, unit_elements, unit_elements};
  const int64_t chunks = (unit_elements + kShardChunk - 1) / kShardChunk;
  range.padded = (chunks + count - 1) / count * kShardChunk;
  range.begin = std::min(unit_elements, range.padded * index);
  range.end = std::min(unit_elements, range.padded * (index + 1));
  return range;
}

int64_t padded_elements(int64_t unit_elements, int count) {
  return shard_range(unit_elements, 0, count).padded * count;
}

}  // namespace vitrine

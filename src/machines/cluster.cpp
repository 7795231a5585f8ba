// Clusters from names: shipped profiles, a user's file over one, topologies.
#include "machines/cluster.h"

#include <algorithm>
#include <map>

#include "core/error.h"
#include "core/format.h"
#include "core/json.h"
#include "machines/cluster_profile.h"
#include "machines/embedded_profiles.h"

namespace vitrine {
namespace {

struct Shipped {
  std::vector<std::string> names;           // in the order of the files
  std::map<std::string, Cluster> clusters;  // by name
  std::map<std::string, std::string> keys;  // squeezed names and aliases to names
};

// A profile's base stands before it.
void read_profiles(Shipped& shipped, const char* text, const std::string& where) {
  for (const Json& profile : parse_json(text, where)) {
    const std::string name = profile.at("name");
    Cluster cluster;
    if (profile.contains("base")) cluster = shipped.clusters.at(profile["base"]);
    apply_profile(cluster, profile, "profile " + name, true);
    cluster.profile = name;
    shipped.names.push_back(name);
    shipped.keys[squeezed_name(name)] = name;
    for (const Json& alias : profile.value("aliases", Json::array())) {
      shipped.keys[squeezed_name(alias)] = name;
    }
    shipped.clusters[name] = std::move(cluster);
  }
}

const Shipped& shipped() {
  static const Shipped all = [] {
    Shipped read;
    read_profiles(read, machines::kServerProfiles, "nvidia_server.json");
    read_profiles(read, machines::kOtherProfiles, "others.json");
    return read;
  }();
  return all;
}

const Cluster& shipped_cluster(const std::string& name) {
  const auto found = shipped().keys.find(squeezed_name(name));
  if (found != shipped().keys.end()) return shipped().clusters.at(found->second);
  std::vector<std::string> keys;
  for (const auto& [key, profile] : shipped().keys) keys.push_back(key);
  const std::string near = nearest_name(squeezed_name(name), keys);
  throw ConfigError("no card profile is called \"" + name + "\"" +
                    (near.empty() ? "" : "; did you mean \"" + shipped().keys.at(near) + "\"?") +
                    " Known: " + join(shipped().names, ", "));
}

struct Wanted {
  int gpus = 1;
  std::string name;
};

// "64xH100", "64", "H100".
Wanted parse_gpus(const std::string& text) {
  size_t digits = 0;
  while (digits < text.size() && text[digits] >= '0' && text[digits] <= '9') ++digits;
  size_t at = text.find_first_not_of(' ', digits);
  const bool all = at == std::string::npos;
  const bool times = !all && (text[at] == 'x' || text[at] == 'X' || text[at] == '*');
  Wanted wanted;
  if (digits == 0 || (!all && !times)) {  // a name alone, which may begin with digits ("5060Ti")
    wanted.name = text;
    if (text.empty() || text[0] == '-' || text[0] == '+') {
      throw ConfigError("gpus: expected a number and a card as in \"64xH100\", got \"" + text +
                        "\"");
    }
    return wanted;
  }
  const std::string number = text.substr(0, digits);
  wanted.gpus = number.size() > 7 ? 0 : std::stoi(number);
  if (wanted.gpus < 1 || wanted.gpus > 1'000'000) {
    throw ConfigError("gpus: expected from 1 to 1000000 cards, got \"" + text + "\"");
  }
  if (times) {
    wanted.name = text.substr(text.find_first_not_of(' ', at + 1) == std::string::npos
                                  ? text.size()
                                  : text.find_first_not_of(' ', at + 1));
    if (wanted.name.empty()) {
      throw ConfigError("gpus: the card is missing after \"" + text + "\", as in \"64xH100\"");
    }
  }
  return wanted;
}

Cluster with_profile_file(const Wanted& wanted, const std::string& path) {
  const Json file = read_json_file(path);
  JsonReader in(file, path);
  const std::string base = in.text("base", "");
  const std::string name = in.text("name", base);
  const bool is_own_name = squeezed_name(wanted.name) == squeezed_name(name);
  const bool own = wanted.name.empty() || (is_own_name && in.has("name"));
  if (base.empty() && own && in.raw("card").is_object()) {  // a machine of its own
    Cluster cluster;
    apply_profile(cluster, file, path, true);
    cluster.profile = name.empty() ? cluster.card->name : name;
    return cluster;
  }
  if (base.empty() && own) {
    throw ConfigError(path + ": \"base\", the profile that it changes, is missing; known: " +
                      join(shipped().names, ", "));
  }
  Cluster cluster = shipped_cluster(base.empty() ? wanted.name : base);
  if (!base.empty() && !wanted.name.empty() && !is_own_name &&
      shipped_cluster(wanted.name).profile != cluster.profile) {
    throw ConfigError("gpus: \"" + wanted.name + "\" is neither the base (" + cluster.profile +
                      ") nor the name of the profile " + path);
  }
  apply_profile(cluster, file, path, true);
  if (!name.empty()) cluster.profile = name;
  return cluster;
}

// As many cards of a node as spread the job evenly, in whole trays.
int even_node(const Cluster& cluster) {
  const int node = cluster.gpus_per_node;
  if (cluster.tray == 0 || cluster.gpus <= node) return node;
  for (int size = node; size >= cluster.tray; size -= cluster.tray) {
    if (cluster.gpus % size == 0) return size;
  }
  return node;
}

const Json& topology_list() {
  static const Json list = parse_json(machines::kTopologies, "topologies.json");
  return list;
}

}  // namespace

const std::vector<std::string>& card_profiles() { return shipped().names; }

bool is_of_profile(const std::string& profile_file, const std::string& name) {
  const Json file = read_json_file(profile_file);
  JsonReader in(file, profile_file);
  const std::string base = in.text("base", ""), own = in.text("name", base);
  if (squeezed_name(own) == squeezed_name(name)) return true;
  const auto& keys = shipped().keys;
  const auto of_base = keys.find(squeezed_name(base)), wanted = keys.find(squeezed_name(name));
  return of_base != keys.end() && wanted != keys.end() && of_base->second == wanted->second;
}

Cluster make_cluster(const std::string& gpus, const std::string& profile_file) {
  const Wanted wanted = parse_gpus(gpus);
  if (profile_file.empty() && wanted.name.empty()) {
    throw ConfigError("gpus: which card? as in \"" + gpus +
                      "xH100\"; known: " + join(shipped().names, ", "));
  }
  Cluster cluster =
      profile_file.empty() ? shipped_cluster(wanted.name) : with_profile_file(wanted, profile_file);
  cluster.gpus = wanted.gpus;
  cluster.gpus_per_node = even_node(cluster);
  cluster.island = std::min(cluster.island, cluster.gpus_per_node);
  return cluster;
}

namespace {

const Efficiency* find_stack(const Cluster& cluster, const std::string& name) {
  const std::string wanted = squeezed_name(name);
  const Efficiency* found = nullptr;
  if (squeezed_name(cluster.efficiency.era) == wanted) return &cluster.efficiency;
  for (const Efficiency& each : cluster.stacks) {
    if (squeezed_name(each.era) == wanted) return &each;
  }
  if (squeezed_name(cluster.efficiency.era).find(wanted) != std::string::npos) {
    found = &cluster.efficiency;
  }
  for (const Efficiency& each : cluster.stacks) {
    if (squeezed_name(each.era).find(wanted) != std::string::npos) found = &each;
  }
  return wanted.empty() ? nullptr : found;
}

}  // namespace

void choose_stack(Cluster& cluster, const std::string& name) {
  const Efficiency* found = find_stack(cluster, name);
  if (!found) {
    std::vector<std::string> known = {cluster.efficiency.era};
    for (const Efficiency& each : cluster.stacks) known.push_back(each.era);
    throw ConfigError("no software called \"" + name + "\" is known on " + cluster.profile +
                      "; known: \"" + join(known, "\", \"") + "\"");
  }
  // What the card reaches stays its own: stacks come with a chip, ceilings and power with a card.
  const Efficiency stack = *found;
  cluster.efficiency.era = stack.era;
  cluster.efficiency.matmul = stack.matmul;
  cluster.efficiency.narrow_share = stack.narrow_share;
  cluster.efficiency.fill = stack.fill;
  cluster.efficiency.swiglu_in_products = stack.swiglu_in_products;
  cluster.efficiency.memory = stack.memory;
  cluster.efficiency.launch_ns = stack.launch_ns;
  cluster.efficiency.communication = stack.communication;
  cluster.efficiency.fitted_to = stack.fitted_to;
}

bool has_stack(const Cluster& cluster, const std::string& name) {
  return find_stack(cluster, name) != nullptr;
}

const std::vector<std::string>& topologies() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Json& each : topology_list()) all.push_back(each.at("name"));
    return all;
  }();
  return names;
}

void apply_topology(Cluster& cluster, const std::string& topology) {
  const auto apply = [&](const Json& fields, const std::string& where) {
    cluster.tray = 0;
    apply_profile(cluster, fields, where, false);
    cluster.gpus_per_node = even_node(cluster);
    cluster.island = std::min(cluster.island, cluster.gpus_per_node);
  };
  for (const Json& each : topology_list()) {
    if (squeezed_name(each.at("name")) == squeezed_name(topology)) {
      return apply(each, "topology " + topology);
    }
  }
  if (topology.find('/') != std::string::npos || topology.ends_with(".json")) {
    return apply(read_json_file(topology), topology);
  }
  const std::string near = nearest_name(lower(topology), topologies());
  throw ConfigError("no topology is called \"" + topology + "\"" +
                    (near.empty() ? "" : "; did you mean \"" + near + "\"?") +
                    " Known: " + join(topologies(), ", ") + "; or give the path of a file.");
}

}  // namespace vitrine

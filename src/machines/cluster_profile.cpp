// Reading of profiles.
#include "machines/cluster_profile.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <deque>
#include <mutex>

#include "core/error.h"
#include "core/format.h"
#include "core/json.h"
#include "machines/measured_gpus.h"

namespace vitrine {
namespace {

constexpr double kMostAmount = 1e21;  // beyond any machine, and far from the ends of a double
constexpr double kLeastShare = 1e-4, kMostCommunication = 10, kMostFill = 1e5, kMostNs = 1e9;

// A rate, size or time: not negative.
double amount(JsonReader& in, const char* key, double fallback, double most = kMostAmount) {
  const double value = in.number(key, fallback);
  if (value >= 0 && value <= most) return value;
  throw ConfigError(in.path_of(key) + format(": must be from 0 to %g, got %g", most, value));
}

// At least `least`, not over a million.
int count(JsonReader& in, const char* key, int fallback, int least) {
  return static_cast<int>(in.integer(key, fallback, least, 1'000'000));
}

const Accelerator& named_card(const std::string& name, const std::string& where) {
  std::vector<std::string> known;
  for (const Accelerator& card : accelerators()) {
    if (squeezed_name(card.name) == squeezed_name(name)) return card;
    known.push_back(card.name);
  }
  const std::string near = nearest_name(name, known);
  throw ConfigError(where + ": no card is called \"" + name + "\"" +
                    (near.empty() ? "" : "; did you mean \"" + near + "\"?") +
                    " Known: " + join(known, ", "));
}

// Cards of profiles live as long as the process, as those of the table do.
struct OwnCard {
  std::string name, link_name, source;
  Accelerator card;
};

const Accelerator* keep(OwnCard own) {
  static std::mutex mutex;
  static std::deque<OwnCard> kept;
  const std::lock_guard<std::mutex> lock(mutex);
  kept.push_back(std::move(own));
  OwnCard& last = kept.back();
  last.card.name = last.name.c_str();
  last.card.link_name = last.link_name.c_str();
  last.card.source = last.source.c_str();
  return &last.card;
}

const Accelerator* own_card(const Json& fields, const std::string& where) {
  JsonReader in(fields, where);
  OwnCard own{};
  if (in.has("base")) own.card = named_card(in.text("base", ""), in.path_of("base"));
  const bool over = own.card.name != nullptr;
  own.name = in.text("name", over ? own.card.name : "");
  own.link_name = in.text("link_name", over ? own.card.link_name : "");
  own.source = in.text("source", over ? own.card.source : "a profile");
  if (own.name.empty()) throw ConfigError(where + ": \"name\" or \"base\" is missing");
  Accelerator& c = own.card;
  c.memory_bytes = static_cast<int64_t>(
      std::min(amount(in, "memory_bytes", static_cast<double>(c.memory_bytes)), 1e18));
  for (const auto& [key, field] : {std::pair("bf16_flops_per_s", &c.bf16_flops_per_s),
                                   {"fp16_flops_per_s", &c.fp16_flops_per_s},
                                   {"fp8_flops_per_s", &c.fp8_flops_per_s},
                                   {"fp4_flops_per_s", &c.fp4_flops_per_s},
                                   {"tf32_flops_per_s", &c.tf32_flops_per_s},
                                   {"fp32_flops_per_s", &c.fp32_flops_per_s},
                                   {"memory_bytes_per_s", &c.memory_bytes_per_s},
                                   {"link_bytes_per_s", &c.link_bytes_per_s},
                                   {"pcie_bytes_per_s", &c.pcie_bytes_per_s}}) {
    *field = amount(in, key, *field);
  }
  in.finish();
  if (c.memory_bytes <= 0 || c.memory_bytes_per_s <= 0) {
    throw ConfigError(where + ": memory_bytes and memory_bytes_per_s are over 0");
  }
  return keep(std::move(own));
}

// A new card brings its links, unless the profile has its own.
void set_card(Cluster& cluster, const Accelerator& card) {
  // What software reaches belongs to a chip.
  if (cluster.card && cluster.card->bf16_flops_per_s != card.bf16_flops_per_s) {
    cluster.stacks.clear();
  }
  cluster.card = &card;
  cluster.link_bytes_per_s = card.link_bytes_per_s;
  cluster.pcie_bytes_per_s = card.pcie_bytes_per_s;
}

// `stack`: of other software on the card, whose ceilings stay.
void set_efficiency(Efficiency& efficiency,
                    const Json& fields,
                    const std::string& where,
                    bool stack = false) {
  JsonReader in(fields, where);
  efficiency.era = in.text("era", efficiency.era);
  efficiency.fitted_to = in.text("fitted_to", efficiency.fitted_to);
  for (const auto& [key, field] : {std::pair("matmul", &efficiency.matmul),
                                   {"memory", &efficiency.memory},
                                   {"ceiling", &efficiency.ceiling},
                                   {"older_instructions", &efficiency.older_instructions},
                                   {"power", &efficiency.power},
                                   {"narrow_ceiling", &efficiency.narrow_ceiling},
                                   {"narrow_share", &efficiency.narrow_share}}) {
    const double share = in.number(key, *field);
    if (!in.has(key)) continue;
    *field = share;
    if (!(share >= kLeastShare && share <= 1)) {
      throw ConfigError(in.path_of(key) +
                        format(": must be from %g to 1, got %g", kLeastShare, share));
    }
  }
  // Of a model's rate and not of a peak: a machine may do better.
  efficiency.communication = in.number("communication", efficiency.communication);
  if (!(efficiency.communication >= kLeastShare &&
        efficiency.communication <= kMostCommunication)) {
    throw ConfigError(in.path_of("communication") + format(": must be from %g to %g, got %g",
                                                           kLeastShare,
                                                           kMostCommunication,
                                                           efficiency.communication));
  }
  if (!in.has("ceiling") && in.has("matmul") && !stack) efficiency.ceiling = efficiency.matmul;
  if (in.has("ceiling") && !in.has("narrow_ceiling")) efficiency.narrow_ceiling = 0;
  efficiency.swiglu_in_products = in.boolean("swiglu_in_products", efficiency.swiglu_in_products);
  efficiency.fill = amount(in, "fill", efficiency.fill, kMostFill);
  efficiency.launch_ns = amount(in, "launch_ns", efficiency.launch_ns, kMostNs);
  in.finish();
}

std::string first_word(const std::string& text) {
  return text.substr(0, text.find_first_of(" :,"));
}

void add_sources(std::vector<std::string>& sources, const Json& added, const std::string& where) {
  if (added.is_null()) return;
  std::vector<std::string> texts;
  for (const Json& each : added.is_array() ? added : Json::array({added})) {
    if (!each.is_string()) throw ConfigError(where + ": expected a list of texts");
    texts.push_back(each.get<std::string>());
  }
  std::erase_if(sources, [&](const std::string& old) {
    return std::any_of(texts.begin(), texts.end(), [&](const std::string& text) {
      return first_word(text) == first_word(old);
    });
  });
  sources.insert(sources.end(), texts.begin(), texts.end());
}

}  // namespace

std::string squeezed_name(const std::string& name) {
  std::string result;
  for (const char c : lower(name)) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) result += c;
  }
  return result;
}

void apply_profile(Cluster& cluster, const Json& fields, const std::string& where, bool with_card) {
  JsonReader in(fields, where);
  in.raw("name");
  if (with_card) {
    in.raw("aliases");
    in.raw("base");
    in.raw("measured");  // read by measured.h
    // What the constants come from, to be looked at.
    if (const Json& gpus = in.raw("measured_gpus"); !gpus.is_null())
      measured_gpus_from_json(gpus, in.path_of("measured_gpus"));
    if (const Json& card = in.raw("card"); card.is_string()) {
      set_card(cluster, named_card(card.get<std::string>(), in.path_of("card")));
    } else if (!card.is_null()) {
      set_card(cluster, *own_card(card, in.path_of("card")));
    }
    if (const Json& efficiency = in.raw("efficiency"); !efficiency.is_null()) {
      set_efficiency(cluster.efficiency, efficiency, in.path_of("efficiency"));
    }
    if (const Json& stacks = in.raw("stacks"); !stacks.is_null()) {
      if (!stacks.is_array())
        throw ConfigError(in.path_of("stacks") + ": expected a list of objects");
      for (size_t i = 0; i < stacks.size(); ++i) {
        Efficiency stack = cluster.efficiency;
        stack.fitted_to = "";
        set_efficiency(stack, stacks[i], in.path_of("stacks") + format("[%zu]", i), true);
        std::erase_if(cluster.stacks, [&](const Efficiency& e) { return e.era == stack.era; });
        cluster.stacks.push_back(std::move(stack));
      }
    }
    cluster.multiprocessors = count(in, "multiprocessors", cluster.multiprocessors, 0);
    cluster.context_bytes = amount(in, "context_bytes", cluster.context_bytes);
    cluster.price_per_hour = amount(in, "price_per_hour", cluster.price_per_hour);
  }
  const std::vector<std::string> kinds = {"switch", "pairs", "pcie"};
  const std::string links = in.choice("links", kinds[static_cast<size_t>(cluster.links)], kinds);
  cluster.links =
      static_cast<NodeLinks>(std::find(kinds.begin(), kinds.end(), links) - kinds.begin());
  cluster.gpus_per_node = count(in, "gpus_per_node", cluster.gpus_per_node, 1);
  cluster.island = count(in, "island", cluster.island, 1);
  cluster.tray = count(in, "tray", cluster.tray, 0);
  cluster.cards_per_host_link = count(in, "cards_per_host_link", cluster.cards_per_host_link, 1);
  for (const auto& [key, field] : {std::pair("link_bytes_per_s", &cluster.link_bytes_per_s),
                                   {"pcie_bytes_per_s", &cluster.pcie_bytes_per_s},
                                   {"network_bytes_per_s", &cluster.network_bytes_per_s},
                                   {"link_latency_ns", &cluster.link_latency_ns},
                                   {"network_latency_ns", &cluster.network_latency_ns},
                                   {"host_memory_bytes", &cluster.host_memory_bytes},
                                   {"host_flops_per_s", &cluster.host_flops_per_s},
                                   {"host_bytes_per_s", &cluster.host_bytes_per_s},
                                   {"disk_bytes_per_s", &cluster.disk_bytes_per_s},
                                   {"disk_bytes", &cluster.disk_bytes}}) {
    *field = amount(in, key, *field);
  }
  add_sources(cluster.sources, in.raw("sources"), in.path_of("sources"));
  in.finish();
  if (cluster.tray > 0 && cluster.gpus_per_node % cluster.tray != 0) {
    throw ConfigError(where + format(": tray (%d) must divide gpus_per_node (%d)",
                                     cluster.tray,
                                     cluster.gpus_per_node));
  }
}

}  // namespace vitrine

// World-model configurations: built-in sizes and JSON.
#include "core/error.h"
#include "core/format.h"
#include "core/json.h"
#include "models/world_model.h"

namespace vitrine {
namespace {

using Config = WorldModelConfig;

const std::vector<std::string> kEncoders = {"patchify", "linear"};
const std::vector<std::string> kHeads = {"gated_sigmoid", "residual"};
const std::vector<std::string> kPositions = {"learned", "rope"};

int64_t swiglu_width(int64_t hidden) { return (hidden * 8 / 3 + 15) / 16 * 16; }

Config make(const char* name,
            int64_t side,
            int64_t patch,
            int64_t hidden,
            int64_t layers,
            int64_t heads,
            int64_t window) {
  Config c;
  c.name = name;
  c.height = c.width = side;
  c.patch = patch;
  c.hidden = hidden;
  c.layers = layers;
  c.heads = heads;
  c.head_dim = hidden / heads;
  c.ffn = swiglu_width(hidden);
  c.window = window;
  c.action_count = 5;
  return c;
}

const std::vector<Config>& all_sizes() {
  static const std::vector<Config> sizes = [] {
    std::vector<Config> all = {make("tiny", 24, 4, 64, 2, 2, 4),
                               make("demo", 64, 8, 96, 4, 3, 8),
                               make("small", 128, 8, 640, 16, 10, 16),
                               make("1b", 256, 16, 1792, 20, 14, 16),
                               make("8b", 512, 16, 4096, 30, 32, 16)};
    for (size_t i = 2; i < all.size(); ++i) {
      all[i].qk_norm = true;  // large attention logits are what ends long runs of wide models
      all[i].positions = Config::Positions::kRope;
    }
    return all;
  }();
  return sizes;
}

template <typename Enum>
Enum read_choice(JsonReader& in,
                 const char* key,
                 Enum fallback,
                 const std::vector<std::string>& names) {
  const std::string name = in.choice(key, names[static_cast<size_t>(fallback)], names);
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return static_cast<Enum>(i);
  }
  return fallback;
}

}  // namespace

void WorldModelConfig::validate() const {
  const std::pair<const char*, int64_t> counts[] = {{"height", height},
                                                    {"width", width},
                                                    {"patch", patch},
                                                    {"hidden", hidden},
                                                    {"layers", layers},
                                                    {"heads", heads},
                                                    {"head_dim", head_dim},
                                                    {"ffn", ffn},
                                                    {"window", window},
                                                    {"action_count", action_count},
                                                    {"rollout_steps", rollout_steps}};
  for (const auto& [field, value] : counts) {
    if (value < 1) {
      throw ConfigError(
          format("world model: %s is at least 1, got %lld", field, static_cast<long long>(value)));
    }
  }
  if (height % patch != 0 || width % patch != 0) {
    throw ConfigError(
        format("world model: frames of %lld x %lld are not whole patches of %lld; "
               "the nearest size that is: %lld x %lld",
               static_cast<long long>(height),
               static_cast<long long>(width),
               static_cast<long long>(patch),
               static_cast<long long>((height + patch - 1) / patch * patch),
               static_cast<long long>((width + patch - 1) / patch * patch)));
  }
  if (positions == Positions::kRope && head_dim % 2 != 0) {
    throw ConfigError("world model: head_dim is even with positions \"rope\", got " +
                      std::to_string(head_dim));
  }
  if (rms_eps <= 0 || init_std < 0 || rollout_weight < 0 || encoder_width < 0) {
    throw ConfigError(
        "world model: rms_eps is positive; init_std, rollout_weight and encoder_width "
        "are not negative");
  }
}

const std::vector<std::string>& world_model_sizes() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Config& size : all_sizes()) all.push_back(size.name);
    return all;
  }();
  return names;
}

WorldModelConfig world_model_size(const std::string& size) {
  for (const Config& known : all_sizes()) {
    if (known.name == size) return known;
  }
  const std::string near = nearest_name(size, world_model_sizes());
  throw ConfigError("model.size: no world model is called \"" + size +
                    "\"; known: " + join(world_model_sizes(), ", ") +
                    (near.empty() ? "" : "; did you mean \"" + near + "\"?"));
}

WorldModelConfig world_model_from_json(const Json& section, const std::string& where) {
  JsonReader in(section, where);
  in.raw("family");
  Config c = in.has("size") ? world_model_size(in.text("size", "")) : Config{};
  in.text("size", "");
  c.name = in.text("name", c.name);
  c.height = in.integer("height", c.height);
  c.width = in.integer("width", c.width);
  c.patch = in.integer("patch", c.patch);
  const bool reshaped = in.has("hidden") || in.has("heads");
  c.hidden = in.integer("hidden", c.hidden);
  c.layers = in.integer("layers", c.layers);
  c.heads = in.integer("heads", c.heads);
  c.head_dim = in.integer("head_dim", reshaped && c.heads > 0 ? c.hidden / c.heads : c.head_dim);
  c.ffn = in.integer("ffn", in.has("hidden") ? swiglu_width(c.hidden) : c.ffn);
  c.window = in.integer("window", c.window);
  c.action_count = in.integer("action_count", c.action_count);
  c.encoder = read_choice(in, "encoder", c.encoder, kEncoders);
  c.encoder_width = in.integer("encoder_width", c.encoder_width);
  c.head = read_choice(in, "head", c.head, kHeads);
  c.positions = read_choice(in, "positions", c.positions, kPositions);
  c.qk_norm = in.boolean("qk_norm", c.qk_norm);
  c.rms_eps = in.number("rms_eps", c.rms_eps);
  c.rollout_steps = in.integer("rollout_steps", c.rollout_steps);
  c.rollout_weight = in.number("rollout_weight", c.rollout_weight);
  c.init_std = in.number("init_std", c.init_std);
  in.finish();
  c.validate();
  return c;
}

Json world_model_to_json(const WorldModelConfig& c) {
  return Json{{"family", "world_model"},
              {"name", c.name},
              {"height", c.height},
              {"width", c.width},
              {"patch", c.patch},
              {"hidden", c.hidden},
              {"layers", c.layers},
              {"heads", c.heads},
              {"head_dim", c.head_dim},
              {"ffn", c.ffn},
              {"window", c.window},
              {"action_count", c.action_count},
              {"encoder", kEncoders[static_cast<size_t>(c.encoder)]},
              {"encoder_width", c.encoder_width},
              {"head", kHeads[static_cast<size_t>(c.head)]},
              {"positions", kPositions[static_cast<size_t>(c.positions)]},
              {"qk_norm", c.qk_norm},
              {"rms_eps", c.rms_eps},
              {"rollout_steps", c.rollout_steps},
              {"rollout_weight", c.rollout_weight},
              {"init_std", c.init_std}};
}

}  // namespace vitrine

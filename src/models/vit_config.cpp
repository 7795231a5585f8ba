// Vision-transformer configurations: built-in sizes and JSON.
#include "core/error.h"
#include "core/format.h"
#include "core/json.h"
#include "models/vit.h"

namespace vitrine {
namespace {

const std::vector<std::string> kPools = {"class_token", "mean"};
const std::vector<std::string> kGelus = {"erf", "tanh", "quick"};

VitConfig make(const char* name,
               int64_t side,
               int64_t patch,
               int64_t hidden,
               int64_t layers,
               int64_t heads,
               int64_t classes) {
  VitConfig c;
  c.name = name;
  c.height = c.width = side;
  c.patch = patch;
  c.hidden = hidden;
  c.layers = layers;
  c.heads = heads;
  c.ffn = 4 * hidden;
  c.classes = classes;
  return c;
}

VitConfig clip(VitConfig c) {
  c.gelu = nn::GeluForm::kQuick;
  c.norm_eps = 1e-5;
  c.patch_bias = false;
  c.pre_norm = true;
  return c;
}

const std::vector<VitConfig>& all_sizes() {
  static const std::vector<VitConfig> sizes = {
      make("tiny", 32, 8, 64, 2, 2, 10),
      make("vit-b16", 224, 16, 768, 12, 12, 1000),
      clip(make("clip-vit-b32", 224, 32, 768, 12, 12, 1000)),
      clip(make("clip-vit-l14", 224, 14, 1024, 24, 16, 1000)),
      clip(make("clip-vit-l14-336", 336, 14, 1024, 24, 16, 1000))};
  return sizes;
}

size_t place_of(const std::vector<std::string>& names, const std::string& name) {
  size_t i = 0;
  while (names[i] != name) ++i;
  return i;
}

}  // namespace

void VitConfig::validate() const {
  const std::pair<const char*, int64_t> counts[] = {{"height", height},
                                                    {"width", width},
                                                    {"patch", patch},
                                                    {"hidden", hidden},
                                                    {"layers", layers},
                                                    {"heads", heads},
                                                    {"ffn", ffn},
                                                    {"classes", classes}};
  for (const auto& [field, value] : counts) {
    if (value < 1) {
      throw ConfigError(
          format("vit: %s is at least 1, got %lld", field, static_cast<long long>(value)));
    }
  }
  if (height % patch != 0 || width % patch != 0) {
    throw ConfigError(format("vit: images of %lld x %lld are not whole patches of %lld",
                             static_cast<long long>(height),
                             static_cast<long long>(width),
                             static_cast<long long>(patch)));
  }
  if (hidden % heads != 0) {
    throw ConfigError(format("vit: hidden (%lld) must be a multiple of heads (%lld)",
                             static_cast<long long>(hidden),
                             static_cast<long long>(heads)));
  }
  if (norm_eps <= 0 || init_std < 0) {
    throw ConfigError("vit: norm_eps is positive and init_std is not negative");
  }
}

const std::vector<std::string>& vit_sizes() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const VitConfig& size : all_sizes()) all.push_back(size.name);
    return all;
  }();
  return names;
}

VitConfig vit_size(const std::string& size) {
  for (const VitConfig& known : all_sizes()) {
    if (known.name == size) return known;
  }
  const std::string near = nearest_name(size, vit_sizes());
  throw ConfigError("model.size: no vision transformer is called \"" + size +
                    "\"; known: " + join(vit_sizes(), ", ") +
                    (near.empty() ? "" : "; did you mean \"" + near + "\"?"));
}

VitConfig vit_from_json(const Json& section, const std::string& where) {
  JsonReader in(section, where);
  in.raw("family");
  VitConfig c = in.has("size") ? vit_size(in.text("size", "")) : VitConfig{};
  in.text("size", "");
  c.name = in.text("name", c.name);
  c.height = in.integer("height", c.height);
  c.width = in.integer("width", c.width);
  c.patch = in.integer("patch", c.patch);
  c.hidden = in.integer("hidden", c.hidden);
  c.layers = in.integer("layers", c.layers);
  c.heads = in.integer("heads", c.heads);
  c.ffn = in.integer("ffn", in.has("hidden") ? 4 * c.hidden : c.ffn);
  c.classes = in.integer("classes", c.classes);
  c.pool = static_cast<VitConfig::Pool>(
      place_of(kPools, in.choice("pool", kPools[static_cast<size_t>(c.pool)], kPools)));
  c.gelu = static_cast<nn::GeluForm>(
      place_of(kGelus, in.choice("gelu", kGelus[static_cast<size_t>(c.gelu)], kGelus)));
  c.norm_eps = in.number("norm_eps", c.norm_eps);
  c.patch_bias = in.boolean("patch_bias", c.patch_bias);
  c.pre_norm = in.boolean("pre_norm", c.pre_norm);
  c.init_std = in.number("init_std", c.init_std);
  in.finish();
  c.validate();
  return c;
}

Json vit_to_json(const VitConfig& c) {
  return Json{{"family", "vit"},
              {"name", c.name},
              {"height", c.height},
              {"width", c.width},
              {"patch", c.patch},
              {"hidden", c.hidden},
              {"layers", c.layers},
              {"heads", c.heads},
              {"ffn", c.ffn},
              {"classes", c.classes},
              {"pool", kPools[static_cast<size_t>(c.pool)]},
              {"gelu", kGelus[static_cast<size_t>(c.gelu)]},
              {"norm_eps", c.norm_eps},
              {"patch_bias", c.patch_bias},
              {"pre_norm", c.pre_norm},
              {"init_std", c.init_std}};
}

}  // namespace vitrine

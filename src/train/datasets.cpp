// Opening of a run's data.
#include "train/datasets.h"

#include <filesystem>

#include "comm/communicator.h"
#include "core/error.h"
#include "core/json.h"
#include "core/philox.h"
#include "data/balls.h"
#include "models/world_model.h"

namespace vitrine {
namespace {

// Values of the model's shapes, for measuring speed without data.
class RandomDataset : public Dataset {
 public:
  explicit RandomDataset(const BatchTypes& batch, int64_t largest_id) : largest_id_(largest_id) {
    for (const auto& [name, type] : batch) {
      std::vector<int64_t> dims = type.shape.dims();
      dims.erase(dims.begin());
      fields_.push_back({name, Shape(dims), type.dtype});
    }
  }
  int64_t size() const override { return 1 << 20; }
  const std::vector<FieldSpec>& fields() const override { return fields_; }
  void fill(int64_t index, uint64_t epoch_seed, std::span<const TensorView> views) const override {
    const Philox random(epoch_seed, static_cast<uint64_t>(index));
    uint64_t counter = 0;
    for (const TensorView& view : views) {
      for (int64_t i = 0; i < view.elements(); ++i) {
        if (view.dtype == DType::kI32) {
          view.as<int32_t>()[i] =
              static_cast<int32_t>(random.below(static_cast<uint64_t>(largest_id_), counter++));
        } else {
          view.as<float>()[i] = static_cast<float>(random.uniform(counter++));
        }
      }
    }
  }

 private:
  int64_t largest_id_;
  std::vector<FieldSpec> fields_;
};

// Made when it is not there; frames of other settings are not taken for it.
void make_or_check(const BallsOptions& options, const std::string& path) {
  if (!std::filesystem::exists(path)) {
    write_balls(options, path);
    return;
  }
  const FrameCache there = FrameCache::open(path);
  if (there.meta().generator == balls_settings(options)) return;
  throw ConfigError("data " + path +
                    " is there already, made with other settings: " + there.meta().generator +
                    ", while this run asks for " + balls_settings(options) +
                    ": remove that folder, set data.path to another one, or train on it as it is "
                    "with data.kind \"frames\"");
}

void make_balls(const RunConfig& config, const WorldModelConfig& model) {
  BallsOptions options;
  options.height = model.height;
  options.width = model.width;
  options.balls = static_cast<int>(config.data.balls);
  const double scale = static_cast<double>(model.height) / 24;  // the world keeps its proportions
  options.radius *= scale;
  options.minimum_speed *= scale;
  options.maximum_speed *= scale;
  options.acceleration *= scale;
  options.episode_frames = config.data.episode_frames;
  options.seed = config.train.seed;
  options.episodes = config.data.episodes;
  make_or_check(options, config.data.path);
  if (config.data.eval_path.empty()) return;
  options.episodes = config.data.eval_episodes;
  options.split = "held-out";
  make_or_check(options, config.data.eval_path);
}

std::shared_ptr<const FrameCache> open_cache(const std::string& path,
                                             const WorldModelConfig& model) {
  auto cache = std::make_shared<const FrameCache>(FrameCache::open(path));
  if (cache->height() != model.height || cache->width() != model.width) {
    throw ConfigError("data " + path + " has frames of " + std::to_string(cache->height()) + " x " +
                      std::to_string(cache->width()) + ", the model takes " +
                      std::to_string(model.height) + " x " + std::to_string(model.width) +
                      ": set model.height and model.width, or import the data at that size");
  }
  if (cache->meta().action_kind == FrameActions::kDiscrete &&
      cache->meta().action_count > model.action_count) {
    throw ConfigError("data " + path + " has " + std::to_string(cache->meta().action_count) +
                      " actions, the model only " + std::to_string(model.action_count) +
                      ": set model.action_count");
  }
  if (cache->meta().action_kind == FrameActions::kContinuous) {
    throw ConfigError("data " + path +
                      " has continuous actions, the model takes numbered ones: "
                      "import the data with numbered actions");
  }
  return cache;
}

}  // namespace

RunData open_data(const RunConfig& config,
                  const BuiltModel& model,
                  int64_t clip_frames,
                  World* world) {
  RunData data;
  const Json section = parse_json(model.resolved, "model");
  if (config.data.kind == "random") {
    data.train = std::make_unique<RandomDataset>(
        model.batch, section.value("vocab", section.value("action_count", 2)));
    return data;
  }
  if (config.data.kind == "tokens") {
    auto shards = std::make_shared<const TokenShards>(TokenShards::open(config.data.path));
    data.train = std::make_unique<TokenDataset>(
        shards, model.sequence_length, section.value("vocab", int64_t{0}));
    return data;
  }
  if (model.family != "world_model") {
    throw ConfigError("data.kind \"" + config.data.kind + "\" gives frames and actions; a " +
                      model.family + " needs \"tokens\" or \"random\"");
  }
  const WorldModelConfig world_model = world_model_from_json(section, "model");
  if (config.data.kind == "balls") {
    // A failure of rank 0 must not leave the others waiting: they then find no data and say so
    // themselves.
    std::string failure;
    if (!world || world->rank() == 0) {
      try {
        make_balls(config, world_model);
      } catch (const Error& error) {
        failure = error.what();
      }
    }
    if (world && world->size() > 1) {
      std::vector<int> all;
      for (int r = 0; r < world->size(); ++r) all.push_back(r);
      world->host_group(all, "data")->barrier();
    }
    if (!failure.empty()) throw IoError(failure);
  }
  data.train_cache = open_cache(config.data.path, world_model);
  if (!config.data.eval_path.empty())
    data.eval_cache = open_cache(config.data.eval_path, world_model);
  data.train = std::make_unique<ClipDataset>(data.train_cache, clip_frames, config.data.stride);
  return data;
}

}  // namespace vitrine

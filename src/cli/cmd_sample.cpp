// vitrine sample: text from a trained decoder, or what a trained world model imagines under given
// actions.
#include <algorithm>
#include <cstdio>
#include <memory>

#include "cli/commands.h"
#include "core/error.h"
#include "core/json.h"
#include "core/philox.h"
#include "data/tokens.h"
#include "train/imagine.h"
#include "train/sample.h"

namespace vitrine {
namespace {

struct Arguments {
  std::string run, prompt = "The ", output;
  std::vector<int32_t> prompt_ids, actions;
  int64_t tokens = 200, horizon = 16, clip = 0;
  SampleOptions sample;
  bool json = false;
};

void print_json(const Json& json) {
  std::printf("%s\n", json.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
}

int sample_text(const Arguments& a, TrainedRun& run) {
  TokenSampler sampler(*run.engine);
  const bool bytes = is_byte_level(run.config, sampler.vocabulary());
  SampleOptions options = a.sample;
  std::vector<int32_t> prompt = a.prompt_ids;
  if (bytes) {
    options.allowed = std::min<int64_t>(kByteVocabulary, sampler.vocabulary());
    if (prompt.empty()) prompt = tokenize_bytes(a.prompt);
  } else if (prompt.empty()) {
    throw UsageError("the run's tokens are not bytes: give the prompt as ids, --prompt-ids 1,2,3");
  }
  const auto print = [&](int32_t id) {
    if (a.json) return;
    const std::string text = bytes ? text_of_tokens({id}) : " " + std::to_string(id);
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  };
  for (const int32_t id : prompt) print(id);
  const std::vector<int32_t> made =
      sampler.sample(prompt, a.tokens, bytes ? kEndOfText : -1, options, print);
  if (a.json) {
    Json json{{"prompt_ids", prompt}, {"ids", made}};
    if (bytes) json["text"] = text_of_tokens(made);
    print_json(json);
  } else {
    std::printf("\n");
  }
  return 0;
}

int sample_world(const Arguments& a, TrainedRun& run) {
  const WorldModelConfig model = world_model_from_json(parse_json(run.model, "model"), "model");
  if (run.config.data.eval_path.empty()) {
    throw ConfigError(a.run + " has no held-out data: set data.eval_path in its run.json");
  }
  const FrameCache cache = FrameCache::open(run.config.data.eval_path);
  if (cache.height() != model.height || cache.width() != model.width) {
    throw ConfigError("data " + run.config.data.eval_path +
                      " and the model differ in the size of frames");
  }
  std::vector<int32_t> actions = a.actions;
  const Philox random(a.sample.seed, stream_of("actions"));
  while (a.actions.empty() && static_cast<int64_t>(actions.size()) < a.horizon) {
    const auto count = static_cast<uint64_t>(model.action_count);
    actions.push_back(static_cast<int32_t>(random.below(count, actions.size())));
  }
  const std::string folder = a.output.empty() ? a.run + "/samples/imagined" : a.output;
  const Imagined imagined = imagine(*run.engine, model, cache, a.clip, actions);
  write_imagined(imagined, folder);
  if (a.json) {
    print_json({{"clip", a.clip},
                {"context_frames", imagined.context},
                {"actions", actions},
                {"png", folder + "/imagined.png"},
                {"gif", folder + "/imagined.gif"}});
  } else {
    std::printf("%lld frames given, %zu imagined: %s/imagined.gif and imagined.png\n",
                static_cast<long long>(imagined.context),
                actions.size(),
                folder.c_str());
  }
  return 0;
}

}  // namespace

void add_sample(CLI::App& app, CommandAction& action) {
  auto a = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand(
      "sample", "Let a trained model write text, or imagine a clip under given actions");
  command->add_option("run", a->run, "Run folder")->required();
  command->add_option("--prompt", a->prompt, "Text to go on from (decoders on bytes)")
      ->capture_default_str();
  command->add_option("--prompt-ids", a->prompt_ids, "Token ids to go on from, e.g. 1,2,3")
      ->delimiter(',');
  command->add_option("--tokens", a->tokens, "Tokens to make")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  command->add_option("--temperature", a->sample.temperature, "0 always takes the likeliest token")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  command->add_option("--top-k", a->sample.top_k, "Only the likeliest k tokens; 0 = all")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  command->add_option("--seed", a->sample.seed, "Of the random numbers")->capture_default_str();
  command
      ->add_option("--actions",
                   a->actions,
                   "World models: one imagined frame each, e.g. 1,1,3,3 (default: random)")
      ->delimiter(',');
  command
      ->add_option("--horizon", a->horizon, "World models: frames to imagine under random actions")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("--clip", a->clip, "World models: the held-out clip to begin with")
      ->capture_default_str();
  command->add_option("-o,--output",
                      a->output,
                      "World models: folder of the pictures (default: RUN/samples/imagined)");
  command->add_flag("--json", a->json, "Print one JSON line instead");
  command->footer(
      "Examples: vitrine sample runs/tiny_lm --prompt 'Once ' --temperature 0.8\n"
      "          vitrine sample runs/demo --actions 1,1,1,3,3,3");
  command->callback([a, &action] {
    action = [a] {
      TrainedRun run = open_trained_run(a->run);
      if (run.family == "decoder") return sample_text(*a, run);
      if (run.family == "world_model") return sample_world(*a, run);
      throw ConfigError(a->run + " trained a " + run.family +
                        "; decoders and world models can be sampled");
    };
  });
}

}  // namespace vitrine

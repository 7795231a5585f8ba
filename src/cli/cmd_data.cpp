// vitrine data: making of frame caches and token shards.
#include <cstdio>
#include <filesystem>
#include <memory>

#include "cli/commands.h"
#include "core/error.h"
#include "core/format.h"
#include "core/json.h"
#include "data/balls.h"
#include "data/tokens.h"
#include "data/video.h"

namespace vitrine {
namespace {

void print_summary(const DataSummary& summary, const std::string& folder) {
  std::printf(
      "%s: %lld frames in %lld episodes, %s, %.2f s (%s frames/s)\n",
      folder.c_str(),
      static_cast<long long>(summary.frames),
      static_cast<long long>(summary.episodes),
      format_bytes(static_cast<double>(summary.bytes)).c_str(),
      summary.seconds,
      format_count(static_cast<double>(summary.frames) / std::max(summary.seconds, 1e-9)).c_str());
}

void add_balls(CLI::App& data, CommandAction& action) {
  struct Arguments {
    BallsOptions options;
    std::string output;
    bool harder = false, overwrite = false;
  };
  auto a = std::make_shared<Arguments>();
  CLI::App* command =
      data.add_subcommand("balls", "Make the balls world: balls in a box, one driven by actions");
  command->add_option("-o,--output", a->output, "Frame-cache folder")->required();
  command->add_option("--height", a->options.height)->capture_default_str();
  command->add_option("--width", a->options.width)->capture_default_str();
  command->add_option("--balls", a->options.balls)->capture_default_str();
  command->add_option("--radius", a->options.radius)->capture_default_str();
  command->add_option("--episodes", a->options.episodes)->capture_default_str();
  command->add_option("--frames", a->options.episode_frames, "Frames an episode")
      ->capture_default_str();
  command->add_option("--seed", a->options.seed)->capture_default_str();
  command->add_option("--split", a->options.split, "Episodes of different splits share nothing")
      ->capture_default_str();
  command->add_flag("--harder", a->harder, "Out of distribution: more balls, faster");
  command->add_flag("--overwrite", a->overwrite);
  command->footer("Example: vitrine data balls -o data/balls --episodes 512");
  command->callback([a, &action] {
    action = [a] {
      const BallsOptions options = a->harder ? out_of_distribution(a->options) : a->options;
      print_summary(write_balls(options, a->output, a->overwrite), a->output);
      return 0;
    };
  });
}

void add_video(CLI::App& data, CommandAction& action) {
  struct Arguments {
    VideoOptions options;
    std::string fit = "crop";
  };
  auto a = std::make_shared<Arguments>();
  CLI::App* command = data.add_subcommand(
      "video", "Import video files into a frame cache, through FFmpeg's libraries");
  command->add_option("inputs", a->options.inputs, "Video files, or folders of them")->required();
  command->add_option("-o,--output", a->options.output, "Frame-cache folder")->required();
  command->add_option("--height", a->options.height)->capture_default_str();
  command->add_option("--width", a->options.width)->capture_default_str();
  command->add_option("--fit", a->fit, "crop or letterbox")
      ->check(CLI::IsMember({"crop", "letterbox"}))
      ->capture_default_str();
  command->add_option("--stride", a->options.frame_stride, "Keep every n-th frame")
      ->capture_default_str();
  command->add_option("--fps", a->options.target_fps, "Keep frames at this rate");
  command->add_flag("--allow-truncated",
                    a->options.allow_truncated,
                    "Take what is left of files that were cut off");
  command->add_flag("--overwrite", a->options.overwrite);
  command->footer(
      "Example: vitrine data video clips/ -o data/clips --height 96 --width 96\n"
      "Actions: one row a frame in NAME.actions.csv beside each file.");
  command->callback([a, &action] {
    action = [a] {
      a->options.fit = a->fit == "letterbox" ? VideoFit::kLetterbox : VideoFit::kCrop;
      const VideoSummary summary = import_video(a->options);
      for (const VideoFileSummary& file : summary.files) {
        std::printf("%s: %s, %lld frames at %.3g fps",
                    file.path.c_str(),
                    file.codec.c_str(),
                    static_cast<long long>(file.frames),
                    file.fps);
        if (file.decode_errors)
          std::printf(", %lld damaged", static_cast<long long>(file.decode_errors));
        std::printf("%s\n", file.truncated ? ", cut off" : "");
      }
      print_summary(summary, a->options.output);
      return 0;
    };
  });
}

void add_tokens(CLI::App& data, CommandAction& action) {
  struct Arguments {
    std::vector<std::string> inputs;
    std::string output;
    bool info = false;
  };
  auto a = std::make_shared<Arguments>();
  CLI::App* command = data.add_subcommand(
      "tokens",
      "Make token shards from text files (one token a byte), or look at existing .bin files");
  command->add_option("inputs", a->inputs, "Text files, or token files with --info")->required();
  command->add_option("-o,--output", a->output, "Token shard to write");
  command->add_flag(
      "--info", a->info, "Say what existing token files hold (layouts of llm.c and BIN.TOK)");
  command->footer("Example: vitrine data tokens book.txt -o data/book.bin");
  command->callback([a, &action] {
    action = [a] {
      if (a->info) {
        for (const std::string& path : a->inputs) {
          const TokenShard shard(path);
          std::printf(
              "%s: %lld tokens, vocabulary %s%s\n",
              path.c_str(),
              static_cast<long long>(shard.size()),
              shard.vocabulary() ? std::to_string(shard.vocabulary()).c_str() : "not stated",
              shard.has_mask() ? ", with a mask" : "");
        }
        return 0;
      }
      if (a->output.empty()) throw UsageError("data tokens: give the shard to write with -o");
      std::vector<int32_t> tokens;
      for (const std::string& path : a->inputs) {
        const std::vector<int32_t> part = tokenize_bytes(read_text_file(path));
        tokens.insert(tokens.end(), part.begin(), part.end());
        tokens.push_back(kEndOfText);
      }
      const std::filesystem::path folder = std::filesystem::path(a->output).parent_path();
      if (!folder.empty()) std::filesystem::create_directories(folder);
      write_token_shard(a->output, tokens, kByteVocabulary);
      std::printf("%s: %zu tokens of a vocabulary of %d\n",
                  a->output.c_str(),
                  tokens.size(),
                  kByteVocabulary);
      return 0;
    };
  });
}

}  // namespace

void add_data(CLI::App& app, CommandAction& action) {
  CLI::App* data = app.add_subcommand("data", "Make training data");
  data->require_subcommand(1);
  add_balls(*data, action);
  add_video(*data, action);
  add_tokens(*data, action);
}

}  // namespace vitrine

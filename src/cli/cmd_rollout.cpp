// vitrine rollout: open-loop evaluation and pictures of a trained world model.
#include <cstdio>
#include <memory>

#include "cli/commands.h"
#include "cli/launch.h"
#include "train/run_folder.h"
#include "train/trainer.h"

namespace vitrine {

void add_rollout(CLI::App& app, CommandAction& action, const CommandLine& line) {
  struct Arguments {
    std::string run, output;
    int64_t clips = 64, horizon = 16;
    bool json = false;
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand(
      "rollout", "Let a trained world model imagine held-out clips, and measure it");
  command->add_option("run", arguments->run, "Run folder")->required();
  command->add_option("--clips", arguments->clips, "Held-out clips")->capture_default_str();
  command->add_option("--horizon", arguments->horizon, "Frames to imagine")->capture_default_str();
  command->add_option(
      "-o,--output", arguments->output, "Folder of the pictures (default: RUN/samples/rollout)");
  command->add_flag("--json", arguments->json, "Print the numbers as JSON");
  command->footer("Example: vitrine rollout runs/demo --horizon 16");
  command->callback([arguments, &action, &line] {
    action = [arguments, &line] {
      return run_ranks(1, line, arguments->run + "/log", 300, "cpu", [&](World*) {
        WorldEvalOptions options;
        options.clips = arguments->clips;
        options.horizon = arguments->horizon;
        options.picture_folder =
            arguments->output.empty() ? arguments->run + "/samples/rollout" : arguments->output;
        const WorldEval eval = evaluate_run(arguments->run, options);
        if (arguments->json) {
          std::printf("%s\n", world_eval_json(eval).c_str());
          return 0;
        }
        std::printf(
            "%lld held-out clips, one frame ahead: PSNR %.1f dB (copying the last frame %.1f, "
            "wrong actions %.1f)\n",
            static_cast<long long>(eval.clips),
            eval.psnr,
            eval.psnr_copy,
            eval.psnr_shuffled);
        std::printf("%8s  %10s  %10s", "horizon", "PSNR", "copy PSNR");
        if (eval.has_state) std::printf("  %12s  %10s  %5s", "centre error", "copy", "lost");
        std::printf("\n");
        for (const HorizonError& h : eval.horizons) {
          std::printf(
              "%8lld  %7.1f dB  %7.1f dB", static_cast<long long>(h.horizon), h.psnr, h.psnr_copy);
          if (eval.has_state) {
            std::printf("  %9.2f px  %7.2f px  %5lld",
                        h.model_pixels,
                        h.copy_pixels,
                        static_cast<long long>(h.lost));
          }
          std::printf("\n");
        }
        std::printf("pictures: %s\n", options.picture_folder.c_str());
        return 0;
      });
    };
  });
}

}  // namespace vitrine

// vitrine compare: two runs side by side, and what made the difference.
#include <cstdio>
#include <memory>

#include "analysis/compare.h"
#include "cli/commands.h"
#include "core/error.h"
#include "inspect/inspect.h"
#include "report/analysis_json.h"
#include "report/comparison_text.h"

namespace vitrine {

void add_compare(CLI::App& app, CommandAction& action) {
  struct Arguments {
    std::string a, b;
    bool json = false;
  };
  auto a = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand(
      "compare",
      "Say what changed between two runs, by step, phase, operation, kernel, collective");
  command->add_option("a", a->a, "Trace or folder of the first run")->required();
  command->add_option("b", a->b, "Trace or folder of the second run")->required();
  command->add_flag("--json", a->json, "Print JSON for programs (docs/formats/analysis.md)");
  command->footer("Example: vitrine compare before/ after/");
  command->callback([a, &action] {
    action = [a] {
      const JobFacts before = inspect_job({a->a});
      Comparison comparison = compare(before, inspect_job({a->b}));
      comparison.name_a = a->a, comparison.name_b = a->b;
      if (a->json) {
        const auto replace = nlohmann::json::error_handler_t::replace;
        std::printf("%s\n", comparison_json(comparison).dump(1, ' ', false, replace).c_str());
      } else {
        std::fputs(comparison_text(comparison).c_str(), stdout);
      }
      return 0;
    };
  });
}

}  // namespace vitrine

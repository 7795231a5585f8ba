// vitrine report: one self-contained page about a run.
#include <cstdio>
#include <memory>

#include "cli/commands.h"
#include "cli/run_report.h"

namespace vitrine {

void add_report(CLI::App& app, CommandAction& action) {
  struct Arguments {
    std::string run, output;
  };
  auto a = std::make_shared<Arguments>();
  CLI::App* command =
      app.add_subcommand("report", "Write a run's page: curves, memory, timeline, pictures");
  command->add_option("run", a->run, "Run folder")->required();
  command->add_option("-o,--output", a->output, "HTML file (default: RUN/report.html)");
  command->footer("Example: vitrine report runs/demo -o demo.html");
  command->callback([a, &action] {
    action = [a] {
      std::printf("%s\n", write_run_report(a->run, a->output).c_str());
      return 0;
    };
  });
}

}  // namespace vitrine

// vitrine: plan, train and see through large-model training.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>

#include "cli/commands.h"
#include "cli/terminal.h"
#include "comm/launcher.h"
#include "core/error.h"

namespace {

// OpenMP reads its settings when the process starts: compute threads must not spin for long while
// they wait, or the communication lanes starve; but a sleep between two small operations costs more
// than they do.
void restart_with_short_waits(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY") || std::getenv("VITRINE_RESTARTED")) return;
  setenv("OMP_WAIT_POLICY", "passive", 1);
  setenv("GOMP_SPINCOUNT", vitrine::kOpenMpSpins, 0);
  setenv("VITRINE_RESTARTED", "1", 1);
  execv("/proc/self/exe", argv);  // on failure the program just goes on
}

int run(int argc, char** argv) {
  CLI::App app{
      "Train large models and video world models with ZeRO; see where time and memory went, in "
      "runs "
      "of Vitrine, PyTorch and Nsight Systems."};
  app.set_version_flag("--version", "vitrine " VITRINE_VERSION);
  app.require_subcommand(1);
  app.footer("`vitrine COMMAND --help` shows each command with an example.");
  vitrine::CommandAction action;
  const vitrine::CommandLine line{{argv + 1, argv + argc}};
  vitrine::add_train(app, action, line);
  vitrine::add_demo(app, action, line);
  vitrine::add_rollout(app, action, line);
  vitrine::add_sample(app, action);
  vitrine::add_data(app, action);
  vitrine::add_report(app, action);
  vitrine::add_diagnose(app, action);
  vitrine::add_compare(app, action);
  vitrine::add_trace(app, action);
  vitrine::add_bench(app, action, line);
  vitrine::add_explain(app, action);
  vitrine::add_plan(app, action);
  vitrine::add_validate(app, action);
  vitrine::add_calibrate(app, action, line);
  vitrine::add_doctor(app, action);
  vitrine::add_top(app, action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  const int code = action();
  // A full disk behind a redirection must not look like success.
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    throw vitrine::IoError("cannot write to standard output: is the disk full?");
  }
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  restart_with_short_waits(argv);
  try {
    return run(argc, argv);
  } catch (const vitrine::UsageError& error) {
    vitrine::print_error(error.what());
    return 2;
  } catch (const std::bad_alloc&) {
    vitrine::print_error("the system has no memory left");
    return 1;
  } catch (const std::exception& error) {
    vitrine::print_error(error.what());
    return 1;
  }
}

// vitrine top: a run and the GPUs, live in the terminal, once, as JSON, or for Prometheus.
#include <httplib.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <mutex>
#include <thread>

#include "cli/commands.h"
#include "cli/terminal.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/json.h"
#include "report/live_view.h"

namespace vitrine {

namespace {

const char* const kFooter =
    "RUN: the folder of a run, whose last step is shown with the GPUs of this machine.\n"
    "Exit code: 0 shown, 1 no such run, or no GPU where --gpus (or no RUN) asks for them.\n"
    "Examples:\n"
    "  vitrine top runs/demo\n"
    "  vitrine top --gpus --once --json | jq '.gpus[].power_watts'\n"
    "  vitrine top runs/demo --prometheus 9400 --listen 0.0.0.0    # http://HOST:9400/metrics";

struct Arguments {
  std::string run;
  bool gpus = false, once = false, json = false;
  double every_s = 1;
  int port = 0;
  std::string listen = "127.0.0.1";
};

class Source {
 public:
  explicit Source(const Arguments& a) : run_(a.run), nvml_(Nvml::open(why_)) {
    if (!nvml_ && (a.gpus || a.run.empty())) throw DeviceError(why_);
  }

  LiveView view() {
    const std::lock_guard lock(mutex_);  // scrapes come from several threads
    LiveView view;
    const ClockAnchor& anchor = clock_anchor();
    view.now_s = static_cast<double>(anchor.wall_ns + (now_ns() - anchor.monotonic_ns)) * 1e-9;
    if (!run_.empty()) read_run(run_, view);
    view.no_gpus = why_;
    if (nvml_) view.gpus = nvml_->sample();
    return view;
  }

 private:
  const std::string run_;
  std::string why_;
  std::mutex mutex_;
  std::unique_ptr<Nvml> nvml_;
};

int serve(Source& source, const Arguments& a) {
  httplib::Server server;
  server.Get("/metrics", [&](const httplib::Request&, httplib::Response& response) {
    try {
      response.set_content(live_prometheus(source.view()), "text/plain; version=0.0.4");
    } catch (const Error& error) {
      response.status = 500;
      response.set_content(std::string(error.what()) + "\n", "text/plain");
    }
  });
  if (!server.bind_to_port(a.listen.c_str(), a.port)) {
    throw IoError("cannot listen on " + a.listen + ":" + std::to_string(a.port) +
                  ": is the port taken?");
  }
  std::fprintf(stderr, "serving http://%s:%d/metrics\n", a.listen.c_str(), a.port);
  return server.listen_after_bind() ? 0 : 1;
}

int top(const Arguments& a) {
  Source source(a);
  if (a.port > 0) {
    source.view();  // a wrong RUN is an error now rather than at each scrape
    return serve(source, a);
  }
  const bool terminal = isatty(STDOUT_FILENO) != 0 && !a.once && !a.json;
  for (;;) {
    const LiveView view = source.view();
    const std::string text = a.json ? live_json(view).dump() + "\n" : live_text(view);
    if (terminal) std::fputs("\033[H\033[2J", stdout);
    std::fputs(text.c_str(), stdout);
    if (std::fflush(stdout) != 0) throw IoError("cannot write to standard output");
    if (a.once) return 0;
    std::this_thread::sleep_for(std::chrono::duration<double>(a.every_s));
  }
}

}  // namespace

void add_top(CLI::App& app, CommandAction& action) {
  auto a = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("top", "Watch a run and the GPUs of this machine");
  command->add_option("run", a->run, "The run's folder");
  command->add_flag("--gpus", a->gpus, "GPUs are wanted: an error without them (default: no RUN)");
  command->add_flag("--once", a->once, "Print once and end");
  command->add_flag("--json", a->json, "A line of JSON each time instead of text");
  command->add_option("--every", a->every_s, "Seconds between two looks")
      ->check(CLI::Range(0.1, 3600.0));
  command->add_option("--prometheus", a->port, "Serve /metrics on this port instead")
      ->check(CLI::Range(1, 65535));
  command->add_option("--listen", a->listen, "Address for --prometheus (default: this host only)");
  command->footer(kFooter);
  command->callback([a, &action] { action = [a] { return top(*a); }; });
}

}  // namespace vitrine

// vitrine diagnose: where time and memory went and what to change, as text or JSON.
#include <cstdio>
#include <memory>

#include "analysis/finding.h"
#include "cli/commands.h"
#include "core/error.h"
#include "inspect/inspect.h"
#include "report/analysis_json.h"
#include "report/diagnosis_text.h"

namespace vitrine {

namespace {

constexpr int kExitFindings = 3;

const char* const kFooter =
    "PATH: PyTorch Profiler traces (.json, .json.gz), Nsight Systems exports (.sqlite), PyTorch "
    "memory\n"
    "snapshots (.pickle), NCCL INFO logs, `nvidia-smi topo -m` texts, Vitrine runs, or folders of "
    "them;\n"
    "kinds are told by content, and all of one job are joined.\n"
    "Exit code: 0 read, 1 error, 2 wrong usage, 3 findings at or above --fail-on.\n"
    "Examples:\n"
    "  vitrine diagnose traces/\n"
    "  vitrine diagnose rank0.json.gz nccl.log topo.txt\n"
    "  vitrine diagnose traces/ --json | jq '.findings[0].summary'\n"
    "  vitrine diagnose traces/ --fail-on warning    # for continuous integration\n"
    "docs/formats/analysis.md describes the JSON.";

struct Arguments {
  std::vector<std::string> paths;
  bool json = false, all_rows = false;
  std::string fail_on;
};

int diagnose_paths(const Arguments& a) {
  // Before reading for minutes.
  const bool gate = !a.fail_on.empty();
  const Severity least = gate ? severity_from_name(a.fail_on) : Severity::kCritical;
  const JobFacts job = inspect_job(a.paths);
  const Diagnosis diagnosis = diagnose(job);
  if (a.json) {
    AnalysisJsonOptions options;
    if (a.all_rows) options.max_rows = 0;
    const std::string text = analysis_json(job, diagnosis, options)
                                 .dump(1, ' ', false, nlohmann::json::error_handler_t::replace);
    std::printf("%s\n", text.c_str());
  } else {
    std::fputs(diagnosis_text(job, diagnosis).c_str(), stdout);
  }
  if (!gate) return 0;
  for (const Finding& finding : diagnosis.findings) {
    if (finding.severity >= least) return kExitFindings;
  }
  return 0;
}

}  // namespace

void add_diagnose(CLI::App& app, CommandAction& action) {
  auto a = std::make_shared<Arguments>();
  CLI::App* command =
      app.add_subcommand("diagnose", "Say where time and memory went, why, and what to change");
  command->add_option("paths", a->paths, "Traces, logs, snapshots, or folders of them")->required();
  command->add_flag("--json", a->json, "Print JSON for programs instead of text");
  command->add_flag(
      "--all-rows", a->all_rows, "With --json: whole tables instead of their first 50 rows");
  command->add_option("--fail-on", a->fail_on, "Exit with 3 on a finding of this severity or worse")
      ->check(CLI::IsMember({"note", "warning", "critical"}));
  command->footer(kFooter);
  command->callback([a, &action] { action = [a] { return diagnose_paths(*a); }; });
}

}  // namespace vitrine

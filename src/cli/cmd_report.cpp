// vitrine report: one self-contained page about a job, traced by others or run by Vitrine.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <mutex>

#include "analysis/finding.h"
#include "cli/commands.h"
#include "cli/run_report.h"
#include "core/error.h"
#include "core/format.h"
#include "inspect/inspect.h"
#include "report/report.h"

namespace vitrine {
namespace fs = std::filesystem;

namespace {

// The last part of the path that says something: "traces/run7/" -> "run7".
std::string title_of(const std::string& path) {
  const fs::path absolute = fs::absolute(path).lexically_normal();
  return absolute.has_filename() ? absolute.filename().string()
                                 : absolute.parent_path().filename().string();
}

std::string read_sentence(const JobFacts& job) {
  std::string text =
      format("%zu of %d rank%s", job.ranks.size(), job.world_size, job.world_size == 1 ? "" : "s");
  if (!job.ranks.empty() && !job.ranks.front().device.empty())
    text += " on " + job.ranks.front().device;
  if (!job.ranks.empty()) text += ", recorded by " + job.ranks.front().origin;
  return text;
}

std::string write_trace_report(const std::vector<std::string>& paths, const std::string& output) {
  const std::vector<Input> inputs = find_inputs(paths).inputs;
  for (const Input& one : inputs) {
    std::error_code error;
    if (fs::equivalent(one.path, output, error)) {
      throw UsageError(output + " is one of the inputs; write the page elsewhere");
    }
  }
  std::mutex mutex;
  std::vector<std::pair<std::string, TimelineBlob>> drawn;  // with the paths of their files
  size_t traces = 0;
  for (const Input& one : inputs) {
    traces += one.kind == InputKind::kKineto || one.kind == InputKind::kNsys ? 1 : 0;
  }
  const TimelineBlobOptions blob = blob_options(traces);
  InspectOptions options;
  options.visit = [&](const RankTimeline& timeline, const Input& file) {
    TimelineBlob encoded = encode_timeline(timeline, blob);
    const std::lock_guard lock(mutex);
    drawn.emplace_back(file.path, std::move(encoded));
  };
  const JobFacts job = inspect_job(paths, options);
  const Diagnosis diagnosis = diagnose(job);
  ReportInput input;
  // In the ranks' order; a second file of a rank, which the job leaves out, is not drawn either.
  for (const RankFacts& rank : job.ranks) {
    const auto it = std::find_if(drawn.begin(), drawn.end(), [&](const auto& one) {
      return one.first == rank.path && one.second.rank == rank.rank;
    });
    if (it != drawn.end()) input.timelines.push_back(std::move(it->second));
  }
  input.title = title_of(paths.front());
  input.subtitle = read_sentence(job);
  input.job = &job, input.diagnosis = &diagnosis;
  input.footer = "Vitrine " VITRINE_VERSION;
  write_report(input, output);
  return output;
}

}  // namespace

void add_report(CLI::App& app, CommandAction& action) {
  struct Arguments {
    std::vector<std::string> paths;
    std::string output;
  };
  auto a = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand(
      "report", "Write one HTML page: findings, timeline of all ranks, memory, tables, curves");
  command
      ->add_option("paths", a->paths, "Traces, logs, snapshots, folders of them, or a Vitrine run")
      ->required();
  command->add_option(
      "-o,--output", a->output, "HTML file (default: RUN/report.html, else report.html)");
  command->footer(
      "Examples:\n"
      "  vitrine report traces/ -o report.html\n"
      "  vitrine report rank0.json.gz rank1.json.gz nccl.log topo.txt\n"
      "  vitrine report runs/demo");
  command->callback([a, &action] {
    action = [a] {
      const bool own_run = a->paths.size() == 1 &&
                           find_inputs(a->paths).inputs.front().kind == InputKind::kRunFolder;
      const std::string written =
          own_run ? write_run_report(a->paths[0], a->output)
                  : write_trace_report(a->paths, a->output.empty() ? "report.html" : a->output);
      std::printf("%s\n", written.c_str());
      return 0;
    };
  });
}

}  // namespace vitrine

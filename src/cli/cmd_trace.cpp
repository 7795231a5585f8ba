// vitrine trace info|cut|merge: what is in trace files, parts of them, and all ranks in one.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <set>

#include "analysis/job_facts.h"
#include "cli/commands.h"
#include "core/error.h"
#include "core/format.h"
#include "inspect/inspect.h"
#include "inspect/trace_edit.h"
#include "readers/decimal.h"
#include "readers/inputs.h"

namespace vitrine {
namespace fs = std::filesystem;

namespace {

// "1.5s", "250ms", "40us", "1000ns" -> ns, exactly.
int64_t duration_from_text(const std::string& text, const char* option) {
  const size_t digits = text.find_first_not_of("0123456789.");
  const std::string number = text.substr(0, digits),
                    unit = text.substr(std::min(digits, text.size()));
  const char* exponent = unit == "s"    ? "e6"
                         : unit == "ms" ? "e3"
                         : unit == "us" ? ""
                         : unit == "ns" ? "e-3"
                                        : nullptr;
  int64_t ns = 0;
  if (number.empty() || exponent == nullptr || !microseconds_to_ns(number + exponent, ns)) {
    throw UsageError(std::string(option) +
                     " takes a time since the trace's first event such as 1.5s, 250ms or 40us, "
                     "not \"" +
                     text + "\"");
  }
  return ns;
}

// "4" or "4:6".
void steps_from_text(const std::string& text, CutOptions& options) {
  long long first = 0, last = 0;
  char rest = 0;
  const int fields = std::sscanf(text.c_str(), "%lld:%lld%c", &first, &last, &rest);
  if (fields == 1 && text.find(':') == std::string::npos) last = first;
  const bool whole =
      fields == 2 || (fields == 1 && text.find_first_not_of("0123456789") == std::string::npos);
  if (!whole || first < 0 || last < first) {
    throw UsageError("--step takes a step N or a range A:B (both included), not \"" + text + "\"");
  }
  options.first_step = first, options.last_step = last;
}

std::vector<std::string> trace_files(const std::vector<std::string>& paths, bool kineto_only) {
  std::vector<std::string> out;
  const InputList list = find_inputs(paths);
  for (const std::string& warning : list.warnings)
    std::fprintf(stderr, "warning: %s\n", warning.c_str());
  for (const Input& input : list.inputs) {
    if (input.kind == InputKind::kNsys && kineto_only) {
      throw UsageError(
          input.path +
          " is an Nsight Systems export; `trace cut` and `trace merge` take Chrome traces (.json, "
          ".json.gz). `vitrine report` and `vitrine diagnose` read it as it is.");
    }
    if (input.kind == InputKind::kKineto || input.kind == InputKind::kNsys)
      out.push_back(input.path);
  }
  if (out.empty()) throw IoError("there is no trace in " + join(paths, ", "));
  return out;
}

void print_rank(const RankTimeline& timeline, const std::string& path) {
  int64_t first = INT64_MAX, last = INT64_MIN, device = 0, communication = 0;
  std::set<int32_t> steps;
  const Spans& spans = timeline.spans;
  for (size_t i = 0; i < spans.size(); ++i) {
    first = std::min(first, spans.start_ns[i]);
    last = std::max(last, spans.start_ns[i] + spans.duration_ns[i]);
    if (timeline.lanes[static_cast<size_t>(spans.lane[i])].device) {
      ++device;
      communication += is_communication(spans.kind[i]) ? 1 : 0;
    }
    if (spans.kind[i] == SpanKind::kStep) steps.insert(spans.step[i]);
  }
  const auto info = [&](const char* key) {
    const auto it = timeline.info.find(key);
    return it == timeline.info.end() ? std::string("not said") : it->second;
  };
  size_t streams = 0;
  for (const Lane& lane : timeline.lanes) streams += lane.device ? 1 : 0;
  std::printf("%s\n  rank %d of %d, device %s\n",
              path.c_str(),
              timeline.rank,
              timeline.world_size,
              info("device").c_str());
  std::printf(
      "  %zu spans over %s: %lld on %zu device lanes (%lld communication), the rest on %zu host "
      "threads\n",
      spans.size(),
      first > last ? "no time" : format_ns(static_cast<double>(last - first)).c_str(),
      static_cast<long long>(device),
      streams,
      static_cast<long long>(communication),
      timeline.lanes.size() - streams);
  if (steps.empty()) {
    std::printf("  no step marks\n");
  } else {
    std::printf("  steps %d to %d (%zu)\n", *steps.begin(), *steps.rbegin(), steps.size());
  }
  for (const ProcessGroup& group : timeline.groups) {
    std::printf("  group %s%s%s: %d ranks\n",
                group.name.c_str(),
                group.description.empty() ? "" : " ",
                group.description.c_str(),
                group.size > 0 ? group.size : static_cast<int>(group.ranks.size()));
  }
  if (!timeline.memory.empty() || !timeline.allocations.empty()) {
    std::printf("  memory: %zu samples by category, %zu allocator events\n",
                timeline.memory.size(),
                timeline.allocations.size());
  }
  for (const std::string& warning : timeline.warnings)
    std::printf("  warning: %s\n", warning.c_str());
}

int info(const std::vector<std::string>& paths) {
  const InputList list = find_inputs(paths);
  for (const std::string& warning : list.warnings) {
    std::fprintf(stderr, "warning: %s\n", warning.c_str());
  }
  if (list.inputs.empty()) throw IoError("there is nothing to read in " + join(paths, ", "));
  for (const Input& input : list.inputs) {
    if (input.kind != InputKind::kKineto && input.kind != InputKind::kNsys) {
      std::printf("%s\n  %s, %s\n",
                  input.path.c_str(),
                  input_kind_name(input.kind),
                  format_bytes(static_cast<double>(input.bytes)).c_str());
      continue;
    }
    for (const RankTimeline& timeline : read_timelines(input)) print_rank(timeline, input.path);
  }
  return 0;
}

void warn_damaged(int64_t events, const std::string& path) {
  if (events == 0) return;
  std::fprintf(stderr,
               "warning: %s: %lld events are not JSON (raw control characters, bad UTF-8, NaN) and "
               "are left out\n",
               path.c_str(),
               static_cast<long long>(events));
}

struct CutArguments {
  std::vector<std::string> paths;
  std::string from, to, step, output;
  std::vector<int32_t> ranks;
};

int cut(const CutArguments& a) {
  CutOptions options;
  if (!a.from.empty()) options.from_ns = duration_from_text(a.from, "--from");
  if (!a.to.empty()) options.to_ns = duration_from_text(a.to, "--to");
  if (options.from_ns >= options.to_ns) throw UsageError("--from must be before --to");
  if (!a.step.empty()) steps_from_text(a.step, options);
  if (a.from.empty() && a.to.empty() && a.step.empty() && a.ranks.empty()) {
    throw UsageError("say what to keep: --step, --from and --to, or --rank");
  }
  std::vector<std::string> files = trace_files(a.paths, true);
  std::set<std::string> merged;  // files of several ranks, of which some are chosen
  if (!a.ranks.empty()) {
    std::vector<std::string> chosen;
    std::vector<std::string> found;
    for (const std::string& file : files) {
      const std::vector<RankTimeline> timelines = read_timelines({file, InputKind::kKineto, 0});
      bool wanted = false;
      for (const RankTimeline& timeline : timelines) {
        found.push_back(std::to_string(timeline.rank));
        wanted =
            wanted || std::find(a.ranks.begin(), a.ranks.end(), timeline.rank) != a.ranks.end();
      }
      if (!wanted) continue;
      chosen.push_back(file);
      if (timelines.size() > 1) merged.insert(file);
    }
    if (chosen.empty())
      throw UsageError("--rank chooses none of the ranks that are there: " + join(found, ", "));
    files = std::move(chosen);
  }
  const bool folder = files.size() > 1;
  std::set<std::string> names;
  for (const std::string& file : files) {
    if (!names.insert(fs::path(file).filename().string()).second) {
      throw UsageError("several of the traces are called " + fs::path(file).filename().string() +
                       ": they would overwrite each other in " + a.output +
                       "; cut them one by one");
    }
  }
  std::error_code error;
  const bool made = folder && fs::create_directories(a.output, error);
  if (folder && error) throw IoError("cannot create " + a.output + ": " + error.message());
  for (const std::string& file : files) {
    const std::string output =
        folder ? (fs::path(a.output) / fs::path(file).filename()).string() : a.output;
    if (fs::equivalent(file, output, error))
      throw UsageError(output + " is the input itself; write elsewhere");
    options.ranks = merged.contains(file) ? a.ranks : std::vector<int32_t>{};
    CutResult result;
    try {
      result = cut_trace(file, options, output);
    } catch (...) {
      if (made) fs::remove(a.output, error);  // where nothing was written into it yet
      throw;
    }
    warn_damaged(result.events_damaged, file);
    std::printf("%s: %lld of %lld events\n",
                output.c_str(),
                static_cast<long long>(result.events_kept),
                static_cast<long long>(result.events_total));
  }
  return 0;
}

// Of two files of one rank only the first was read; which of them is wanted is not ours to say.
void refuse_second_files(const std::vector<std::string>& files,
                         const std::set<std::string>& taken,
                         const std::vector<std::string>& warnings) {
  for (const std::string& file : files) {
    if (taken.contains(file)) continue;
    const bool unreadable =
        std::any_of(warnings.begin(), warnings.end(), [&](const std::string& warning) {
          return warning.starts_with("left out: ") && warning.find(file) != std::string::npos;
        });
    if (unreadable) continue;
    throw UsageError(file +
                     " is of a rank that another of the files is of too (the warning above says "
                     "which): a merge takes one file a rank, such as those of one recording");
  }
}

int merge(const std::vector<std::string>& paths, const std::string& output) {
  const std::vector<std::string> files = trace_files(paths, true);
  const JobFacts job = inspect_job(files);
  std::vector<MergeInput> inputs;
  std::set<std::string> merged;
  for (size_t i = 0; i < job.ranks.size(); ++i) {
    const RankFacts& rank = job.ranks[i];
    std::error_code error;
    if (fs::equivalent(rank.path, output, error))
      throw UsageError(output + " is one of the inputs; write elsewhere");
    if (!merged.insert(rank.path).second) {
      throw UsageError(rank.path +
                       " holds several ranks already; merge takes the ranks' own files");
    }
    inputs.push_back({rank.path, rank.rank, job.clocks[i].offset_ns});
    std::printf("rank %d: moved by %s (%s)\n",
                rank.rank,
                format_ns(static_cast<double>(job.clocks[i].offset_ns)).c_str(),
                job.clocks[i].method.c_str());
  }
  for (const std::string& warning : job.warnings)
    std::fprintf(stderr, "warning: %s\n", warning.c_str());
  refuse_second_files(files, merged, job.warnings);
  const MergeResult result = merge_traces(inputs, output);
  warn_damaged(result.events_damaged, output);
  std::printf("%s: %zu ranks, %lld events\n",
              output.c_str(),
              inputs.size(),
              static_cast<long long>(result.events));
  return 0;
}

}  // namespace

void add_trace(CLI::App& app, CommandAction& action) {
  CLI::App* command = app.add_subcommand("trace", "Show, cut or merge trace files");
  command->require_subcommand(1);

  auto shown = std::make_shared<std::vector<std::string>>();
  CLI::App* info_command = command->add_subcommand("info", "Say what files hold");
  info_command->add_option("paths", *shown, "Files or folders")->required();
  info_command->callback([shown, &action] { action = [shown] { return info(*shown); }; });

  auto a = std::make_shared<CutArguments>();
  CLI::App* cut_command =
      command->add_subcommand("cut", "Write a part of traces, by step, time or rank");
  cut_command->add_option("paths", a->paths, "Chrome traces or folders of them")->required();
  cut_command->add_option("--step",
                          a->step,
                          "Step N, or A:B with both included: the host in these steps and the "
                          "device work launched there");
  cut_command->add_option("--from", a->from, "Time since the first event: 1.5s, 250ms, 40us");
  cut_command->add_option("--to", a->to, "Likewise");
  cut_command->add_option("--rank", a->ranks, "Only these ranks");
  cut_command
      ->add_option(
          "-o,--output", a->output, "File (gzipped if it ends in .gz); a folder for several traces")
      ->required();
  cut_command->footer("Example: vitrine trace cut traces/ --rank 3 --step 12 -o step12.json.gz");
  cut_command->callback([a, &action] { action = [a] { return cut(*a); }; });

  auto merged = std::make_shared<std::pair<std::vector<std::string>, std::string>>();
  CLI::App* merge_command =
      command->add_subcommand("merge", "Join all ranks into one trace on one clock");
  merge_command->add_option("paths", merged->first, "Chrome traces or folders of them")->required();
  merge_command->add_option("-o,--output", merged->second, "File (gzipped if it ends in .gz)")
      ->required();
  merge_command->footer(
      "Example: vitrine trace merge traces/ -o all.json.gz   # for ui.perfetto.dev");
  merge_command->callback(
      [merged, &action] { action = [merged] { return merge(merged->first, merged->second); }; });
}

}  // namespace vitrine

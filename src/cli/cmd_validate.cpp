// vitrine validate: predictions against published measurements.
#include <cmath>
#include <cstdio>
#include <memory>

#include "cli/commands.h"
#include "core/error.h"
#include "core/format.h"
#include "core/json.h"
#include "plan/validate.h"

namespace vitrine {
namespace {

Json summary_json(const ErrorSummary& s) {
  if (s.rows == 0) {
    return {
        {"rows", 0}, {"median_abs_error", nullptr}, {"p90_abs_error", nullptr}, {"bias", nullptr}};
  }
  return {{"rows", s.rows},
          {"median_abs_error", s.median_abs_error},
          {"p90_abs_error", s.p90_abs_error},
          {"bias", s.bias}};
}

Json accuracy_json(size_t right, size_t rows) {
  return rows == 0 ? Json() : Json(static_cast<double>(right) / static_cast<double>(rows));
}

Json constants_json(const std::map<std::string, Efficiency>& all) {
  Json out = Json::object();
  for (const auto& [name, e] : all) {
    out[name] = {{"matmul", e.matmul},
                 {"memory", e.memory},
                 {"launch_ns", e.launch_ns},
                 {"communication", e.communication},
                 {"fitted_to", e.fitted_to}};
  }
  return out;
}

Json validation_json(const Validation& v) {
  Json refused = Json::array(), sources = Json::object();
  for (const RefusedRow& row : v.refused) {
    refused.push_back({{"id", row.id}, {"source", row.source}, {"reason", row.reason}});
  }
  for (const auto& [name, s] : v.by_source) {
    sources[name] = {{"step_time", summary_json(s.step_time)},
                     {"memory", summary_json(s.memory)},
                     {"oom_accuracy", accuracy_json(s.oom_right, s.oom_rows)},
                     {"oom_rows", s.oom_rows},
                     {"rows_refused", s.refused}};
  }
  return {{"rows_taken", v.rows_taken},
          {"rows_refused", std::move(refused)},
          {"step_time", summary_json(v.step_time)},
          {"memory", summary_json(v.memory)},
          {"oom_accuracy", accuracy_json(v.oom_right, v.oom_rows)},
          {"oom_rows", v.oom_rows},
          {"by_source", std::move(sources)},
          {"step_time_with_single_gpu", summary_json(v.step_time_all)},
          {"fitted_constants", constants_json(v.fitted)},
          {"constants_without_a_source", constants_json(v.folds)}};
}

std::string percent(const ErrorSummary& s, double value) {
  return s.rows == 0 ? "-" : format("%.1f", 100 * value);
}

// What tells long names of sources apart is at their ends.
std::string shortened(const std::string& name) {
  constexpr size_t kWidth = 52, kHead = 16, kTail = kWidth - kHead - 3;
  if (name.size() <= kWidth) return name;
  return name.substr(0, kHead) + "..." + name.substr(name.size() - kTail);
}

void print_row(const std::string& name,
               const ErrorSummary& step,
               const ErrorSummary& memory,
               size_t right,
               size_t oom,
               size_t refused) {
  const std::string outcomes = oom == 0 ? "-" : format("%zu/%zu", right, oom);
  std::printf("%-52.52s %5zu %7s %7s %7s %4zu %7s %9s %5zu\n",
              shortened(name).c_str(),
              step.rows,
              percent(step, step.median_abs_error).c_str(),
              percent(step, step.p90_abs_error).c_str(),
              percent(step, step.bias).c_str(),
              memory.rows,
              percent(memory, memory.median_abs_error).c_str(),
              outcomes.c_str(),
              refused);
}

void print_text(const Validation& v) {
  std::printf(
      "Errors of predictions in %%: median and 90th percentile of |predicted / measured - 1|, "
      "and bias (median, signed).\nA source's rows are predicted with constants fitted to "
      "the other sources of its accelerator and era.\n\n");
  std::printf("%-52s %5s %7s %7s %7s %4s %7s %9s %5s\n",
              "source",
              "steps",
              "median",
              "p90",
              "bias",
              "mem",
              "median",
              "outcomes",
              "refus");
  for (const auto& [name, s] : v.by_source) {
    print_row(name, s.step_time, s.memory, s.oom_right, s.oom_rows, s.refused);
  }
  std::printf("\n");
  for (const auto& [card, s] : v.by_card) {
    print_row("several " + card, s, {}, 0, 0, 0);
  }
  print_row(
      "all on several cards", v.step_time, v.memory, v.oom_right, v.oom_rows, v.refused.size());
  print_row("and on one", v.step_time_all, {}, 0, 0, 0);
  std::printf("\nConstants fitted to all rows (what profiles ship):\n");
  for (const auto& [group, e] : v.fitted) {
    std::printf("  %-44s matmul %.3f  memory %.3f  launch %.1f us  (%s)\n",
                group.c_str(),
                e.matmul,
                e.memory,
                e.launch_ns * 1e-3,
                e.fitted_to.c_str());
  }
  std::printf("\n%zu rows taken, %zu refused", v.rows_taken, v.refused.size());
  std::map<std::string, std::vector<std::string>> by_reason;
  for (const RefusedRow& row : v.refused) by_reason[row.reason].push_back(row.id);
  std::printf("%s\n", v.refused.empty() ? "" : ":");
  for (const auto& [reason, ids] : by_reason) {
    std::string shown;
    for (size_t i = 0; i < ids.size() && i < 8; ++i) shown += (i > 0 ? ", " : "") + ids[i];
    if (ids.size() > 8) shown += ", ...";
    std::printf("  %5zu  %s (rows %s)\n", ids.size(), reason.c_str(), shown.c_str());
  }
}

// RFC 4180.
std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + "\"";
}

std::string rows_csv(const Measurements& m, const Validation& v) {
  std::string out =
      "id,source,group,gpus,measured_step_s,predicted_step_s,step_error,"
      "measured_memory_bytes,predicted_memory_bytes,memory_error,out_of_memory,"
      "predicted_fits\n";
  const auto error = [](double predicted, double measured) {
    return measured > 0 ? format("%.4f", predicted / measured - 1) : std::string();
  };
  const auto value = [](double v) { return v > 0 ? format("%.6g", v) : std::string(); };
  for (const PredictedRow& row : v.rows) {
    const Measurement& one = m.taken[row.measurement];
    const char* outcome = one.out_of_memory ? "1" : one.ran ? "0" : "";
    out += csv_cell(one.id) + "," + csv_cell(one.source) + "," + csv_cell(one.group) + "," +
           std::to_string(one.strategy.world()) + "," + value(one.step_s) + "," +
           value(row.step_s) + "," + error(row.step_s, one.step_s) + "," + value(one.memory_bytes) +
           "," + value(row.memory_bytes) + "," + error(row.memory_bytes, one.memory_bytes) + "," +
           outcome + "," + (row.fits ? "1" : "0") + "\n";
  }
  return out;
}

}  // namespace

void add_validate(CLI::App& app, CommandAction& action) {
  struct Arguments {
    std::string file, rows;
    bool json = false, profile = false;
  };
  auto a = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand(
      "validate", "Set predictions of `vitrine plan` against published measurements");
  command->add_option("file", a->file, "CSV of measurements (docs/formats/measurements.md)")
      ->required();
  command->add_flag("--json", a->json, "Print JSON for programs instead of text");
  command->add_option("--rows", a->rows, "Write every row's prediction to this CSV file");
  command->add_flag("--no-fit", a->profile, "Predict with the profiles' constants, fit nothing");
  command->footer("Example: vitrine validate published.csv --rows rows.csv");
  command->callback([a, &action] {
    action = [a] {
      const Measurements measurements = read_measurements(read_csv(a->file));
      ValidateOptions options;
      options.fit = !a->profile;
      const Validation v = validate(measurements, options);
      if (!a->rows.empty()) write_text_file(a->rows, rows_csv(measurements, v));
      if (a->json) {
        std::printf("%s\n", validation_json(v).dump(1).c_str());
      } else {
        print_text(v);
      }
      return 0;
    };
  });
}

}  // namespace vitrine

// vitrine plan: will it fit, how fast, which strategy.
#include <cstdio>
#include <memory>
#include <optional>
#include <utility>

#include "cli/commands.h"
#include "cli/plan_options.h"
#include "cli/plan_ranks.h"
#include "core/error.h"
#include "core/format.h"
#include "core/json.h"
#include "plan/advice.h"
#include "plan/card_comparison.h"
#include "plan/deepspeed_estimate.h"
#include "plan/emit.h"
#include "plan/plan_text.h"
#include "plan/strategy_json.h"
#include "plan/unfold.h"
#include "report/report.h"

namespace vitrine {
namespace {

constexpr size_t kChangesShown = 6;

const char* const kFooter =
    "MODEL: a built-in name (gpt-175b, llama3-405b, qwen2.5-7b, world-1b, ...), a Hugging Face "
    "config.json,\na Vitrine run file or model section.\n"
    "Exit code: 0 predicted, 1 impossible or unreadable input, 2 wrong usage.\n"
    "Examples:\n"
    "  vitrine plan llama3-8b --gpus 64xH100 --zero 3 --micro-batch 1 --global-batch 512\n"
    "  vitrine plan llama3-405b --gpus 16384xH100 --seq 8192 --global-batch 2048 --search\n"
    "  vitrine plan config.json --gpus 8xA100 --deepspeed ds_config.json --emit megatron\n"
    "  vitrine plan compare-cards llama3-8b --cards H100,H200,MTT-S4000 --gpus 8\n"
    "  vitrine plan examples/tiny_lm.json --ranks 2 --profile profile.json   # CPU ranks, this "
    "machine\n"
    "docs/howto/plan.md explains the figures, docs/formats/plan.md the JSON.";

struct Arguments {
  PlanOptions job;
  std::optional<int> ranks;
  std::vector<std::string> sets;
  bool search = false, json = false;
  size_t top = 10;
  std::string emit, timeline, estimator, report;
};

// Of the largest matrix: what DeepSpeed's stage-3 estimator calls a layer.
double largest_matrix(const ModelShape& model) {
  const StackShape& k = model.stack;
  const int64_t heads = std::max(k.heads, k.kv_heads) * k.head_dim;
  return static_cast<double>(std::max({model.vocab * k.hidden,
                                       k.hidden * k.ffn,
                                       k.hidden * heads,
                                       k.hidden * k.expert_ffn,
                                       k.hidden * k.shared_ffn}));
}

int print_estimator(const Arguments& a) {
  if (a.job.model.empty() || a.job.gpus.empty()) {
    throw UsageError("--estimator needs MODEL and --gpus");
  }
  const ModelShape model = model_shape(a.job.model);
  const Cluster cluster = plan_cluster(a.job);
  DeepSpeedJob job;
  job.parameters = static_cast<double>(model.parameters());
  job.largest_layer = largest_matrix(model);
  job.gpus_per_node = std::min(cluster.gpus, cluster.gpus_per_node);
  job.nodes = cluster.nodes();
  std::vector<int> stages = {2, 3};
  if (a.job.zero) stages = {*a.job.zero};
  Json tables = Json::object();
  for (const int stage : stages) {
    const std::string text = deepspeed_estimate_table(job, stage);
    tables[format("zero_%d", stage)] = text;
    if (!a.json) std::printf("%s\n", text.c_str());
  }
  if (a.json) std::printf("%s\n", Json{{"deepspeed_estimates", tables}}.dump(1).c_str());
  return 0;
}

int print_emitted(const PlanJob& job, const std::string& what) {
  const Emitted emitted = what == "deepspeed"  ? emit_deepspeed(job.model, job.strategy)
                          : what == "megatron" ? emit_megatron(job.model, job.strategy, job.cluster)
                                               : emit_vitrine(job.model, job.strategy);
  for (const std::string& note : emitted.notes) std::fprintf(stderr, "note: %s\n", note.c_str());
  std::printf("%s\n", emitted.text.c_str());
  return 0;
}

void write_page(const PlanJob& job,
                const Prediction& prediction,
                const Json& plan,
                const std::string& path) {
  ReportInput input;
  input.title = job.model.name + " on " + std::to_string(job.cluster.gpus) + " x " +
                job.cluster.profile + ", predicted";
  input.subtitle = describe_strategy(job.strategy);
  input.facts = {{"Step", format_ns(prediction.time.step_ns)},
                 {"Tokens/s", format_count(prediction.tokens_per_s)},
                 {"MFU", format("%.1f %%", 100 * prediction.mfu)},
                 {"HFU", format("%.1f %%", 100 * prediction.hfu)},
                 {"Global batch", std::to_string(job.strategy.global_batch)},
                 {"Sequence", std::to_string(job.strategy.sequence)},
                 {"Fits", prediction.fits ? "yes" : "no"}};
  input.warnings = job.assumed;
  for (std::string& text : input.warnings) text = "Assumed: " + text;
  input.plan = plan.dump();
  input.footer = "Vitrine, predicted";
  write_report(input, path);
  std::fprintf(stderr, "%s\n", path.c_str());
}

int compare(const Arguments& a, const std::string& names) {
  std::vector<std::string> cards;
  std::string name;
  for (const char c : names + ",") {
    if (c != ',') {
      name += c;
    } else if (!name.empty()) {
      cards.push_back(std::exchange(name, ""));
    }
  }
  if (cards.empty()) {
    throw UsageError("--cards is required: names such as H100,H200,MTT-S4000; known: " +
                     join(card_profiles(), ", "));
  }
  // A profile is of one of the cards.
  const auto is_profiled = [&](const std::string& card) {
    return !a.job.profile.empty() && is_of_profile(a.job.profile, card);
  };
  if (!a.job.profile.empty() && std::none_of(cards.begin(), cards.end(), is_profiled)) {
    throw UsageError("--profile " + a.job.profile + " is of none of the --cards (" +
                     join(cards, ", ") + "): name its card among them");
  }
  const MakeCluster make = [&](int gpus, const std::string& card) {
    PlanOptions one = a.job;
    one.gpus = std::to_string(gpus) + "x" + card;
    if (!is_profiled(card)) one.profile.clear();
    Cluster cluster = plan_cluster(one);
    if (!one.stack.empty()) choose_stack(cluster, one.stack);
    return cluster;
  };
  Arguments own = a;
  if (!is_profiled(cards.front())) own.job.profile.clear();
  const std::string count = own.job.gpus.empty() ? "8" : own.job.gpus;
  if (count.find_first_not_of("0123456789") != std::string::npos) {
    throw UsageError("--gpus " + count +
                     ": of compare-cards it is a number, the cards are --cards");
  }
  own.job.gpus = count + "x" + cards.front();
  SearchSpace space;
  const PlanJob job = search_job(own.job, space);
  const std::vector<CardResult> results = compare_cards(job, space, cards, make);
  if (a.json) {
    std::printf("%s\n", cards_json(results).dump(1).c_str());
  } else {
    std::fputs(cards_text(results).c_str(), stdout);
  }
  return 0;
}

int plan(const Arguments& a, const CLI::App& command) {
  if (a.ranks) {
    return print_plan_of_ranks({a.job.model, a.job.profile, a.timeline, *a.ranks, a.sets, a.json},
                               command);
  }
  if (!a.sets.empty()) {
    throw UsageError("--set overrides keys of a run file that is planned with --ranks");
  }
  if (a.top < 1) throw UsageError("--top 0: is at least 1");
  if (!a.estimator.empty()) return print_estimator(a);
  SearchSpace space;
  PlanJob job = a.search ? search_job(a.job, space) : plan_job(a.job);
  Planner planner(job.model, job.cluster);
  SearchResult found;
  if (a.search) {
    found = search_strategies(planner, space, a.top);
    if (!found.best.empty()) job.strategy = found.best.front().strategy;
  }
  const bool any = !a.search || !found.best.empty();
  if (!a.emit.empty()) {
    if (!any) throw ConfigError("no strategy fits, so that there is none to emit");
    return print_emitted(job, a.emit);
  }
  if (!any && !a.timeline.empty()) {
    throw ConfigError("no strategy fits, so that there is no timeline to write");
  }
  if (!a.timeline.empty()) {
    check_timeline_name(a.timeline);  // before the steps are unfolded
    write_timelines(predicted_timelines(planner, job.strategy), a.timeline);
  }
  Prediction prediction;
  std::vector<PlanChange> changes;
  if (any) {
    prediction = planner.predict(job.strategy);
    changes = nearest_changes(planner, job.strategy, prediction);
  }
  const auto whole_json = [&] {
    Json out = {{"format", "vitrine plan"}, {"version", 1}};
    out.update(job_json(job));
    if (any) {
      out["description"] = describe_strategy(job.strategy);
      out["prediction"] = prediction_json(job, prediction);
      out["limit"] = limit_sentence(planner, job.strategy, prediction);
      out["changes"] = changes_json(changes);
    } else {
      out["strategy"] = nullptr;
    }
    if (a.search) out["search"] = search_json(found);
    return out;
  };
  if (!a.report.empty()) {
    if (!any) throw ConfigError("no strategy fits, so that there is nothing to draw");
    write_page(job, prediction, whole_json(), a.report);
  }
  if (a.json) {
    std::printf("%s\n", whole_json().dump(1).c_str());
    return 0;
  }
  if (any) {
    std::fputs(job_text(job).c_str(), stdout);
    std::fputs(prediction_text(job, prediction).c_str(), stdout);
    std::printf("\n%s\n%s",
                limit_sentence(planner, job.strategy, prediction).c_str(),
                changes_text(prediction, changes, kChangesShown).c_str());
  }
  if (a.search) std::printf("%s%s", any ? "\n" : "", search_text(found).c_str());
  return 0;
}

}  // namespace

void add_plan(CLI::App& app, CommandAction& action) {
  auto a = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand(
      "plan", "Predict memory and time of a training job before it runs; find the best strategy");
  command->add_option("model", a->job.model, "What to train");
  command->add_option("--gpus", a->job.gpus, "How many of which card, as in 64xH100");
  command->add_option("--ranks", a->ranks, "Instead: CPU ranks of this machine for a run file");
  command->add_option("--set", a->sets, "With --ranks: override one key (repeatable)");
  a->job.add_to(command);
  command->add_flag("--search", a->search, "Try all strategies; options hold a part of them fixed");
  command->add_option("--top", a->top, "Strategies listed by --search")->capture_default_str();
  command->add_option("--emit", a->emit, "Print the strategy for others")
      ->check(CLI::IsMember({"deepspeed", "vitrine", "megatron"}));
  command->add_option("--timeline", a->timeline, "Write predicted steps as a trace")
      ->type_name("OUT.json.gz");
  command->add_option("--report", a->report, "Write a page with plots")->type_name("OUT.html");
  command->add_option("--estimator", a->estimator, "Print what another estimator says")
      ->check(CLI::IsMember({"deepspeed"}));
  command->add_flag("--json", a->json, "Print JSON for programs instead of text");
  command->footer(kFooter);
  command->callback([a, command, &action] {
    if (command->get_subcommands().empty()) action = [a, command] { return plan(*a, *command); };
  });
  auto b = std::make_shared<Arguments>();
  auto cards = std::make_shared<std::string>();
  CLI::App* compared = command->add_subcommand(
      "compare-cards", "The same job on several cards: time, memory, cost, what limits each");
  compared->add_option("model", b->job.model, "What to train")->required();
  compared->add_option("--cards", *cards, "Names, with commas between")->required();
  compared->add_option("--gpus", b->job.gpus, "How many of each (default 8)");
  b->job.add_to(compared);
  compared->add_flag("--json", b->json, "Print JSON for programs instead of text");
  compared->footer("Example: vitrine plan compare-cards llama3-8b --cards H100,H200,MTT-S4000");
  compared->callback([b, cards, &action] { action = [b, cards] { return compare(*b, *cards); }; });
}

}  // namespace vitrine

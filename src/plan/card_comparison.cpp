// Searches on each card, and the usual tasks.
#include "plan/card_comparison.h"

#include <algorithm>

#include "core/error.h"
#include "core/format.h"
#include "core/json.h"
#include "plan/strategy_json.h"

namespace vitrine {
namespace {

// Cards whose card-hours are within this factor of the best's suit a task.
constexpr double kSuits = 1.5;

// The precision that was asked for, or the next that the card has.
Precision available(Precision wanted, const Accelerator& card) {
  const std::pair<Precision, double> peaks[] = {{Precision::kF4, card.fp4_flops_per_s},
                                                {Precision::kF8, card.fp8_flops_per_s},
                                                {Precision::kBF16, card.bf16_flops_per_s},
                                                {Precision::kF16, card.fp16_flops_per_s}};
  bool reached = false;
  for (const auto& [precision, peak] : peaks) {
    reached = reached || precision == wanted;
    if (reached && peak > 0) return precision;
  }
  return Precision::kF32;
}

void set_precision(ClusterStrategy& s, Precision precision) {
  if (precision == Precision::kF32 && s.precision != Precision::kF32) {
    s.weight_bytes = s.gradient_bytes = s.reduce_bytes = 4;
    s.master_bytes = 0;
  }
  s.precision = precision;
}

struct Task {
  const char* name;
  const char* model;
  int nodes;  // 0: so many cards as below
  int cards;
  int64_t sequence, batch;
  double tokens;
};
// MISSION's tasks, as jobs that can be predicted.
const std::vector<Task>& tasks() {
  static const std::vector<Task> all = {
      {"fine-tuning 8B on one node, 1e8 tokens", "llama3-8b", 1, 0, 4096, 64, 1e8},
      {"training 70B on 64 cards, 1e9 tokens", "llama3-70b", 0, 64, 8192, 512, 1e9}};
  return all;
}

TaskFit try_task(const Task& task,
                 const std::string& card,
                 Precision wanted,
                 const MakeCluster& make) {
  TaskFit fit;
  fit.task = task.name;
  try {
    Cluster cluster = make(1, card);
    const int cards = task.nodes > 0 ? cluster.gpus_per_node * task.nodes : task.cards;
    // A node of the profile's, also where one card was asked for.
    cluster = make(std::max(1, cards), card);
    SearchSpace space;
    space.base.sequence = task.sequence;
    space.base.global_batch = task.batch;
    set_precision(space.base, available(wanted, *cluster.card));
    Planner planner(model_shape(task.model), cluster);
    const SearchResult found = search_strategies(planner, space, 1);
    if (found.best.empty()) {
      fit.note = "does not fit";
      return fit;
    }
    const Candidate& best = found.best.front();
    const double rate = static_cast<double>(task.batch * task.sequence) / best.step_ns * 1e9;
    fit.possible = true;
    fit.card_hours = task.tokens / rate / 3600 * cluster.gpus;
    fit.note = describe_strategy(best.strategy);
  } catch (const ConfigError& error) {
    fit.note = error.what();
  }
  return fit;
}

// One token of one sequence at a time reads every weight once: the memory's bandwidth is the limit,
// of as few cards as hold the weights.
TaskFit decode(const Accelerator& card) {
  TaskFit fit;
  fit.task = "inference of 8B, bf16, one sequence (bound of the memory's bandwidth)";
  const double bytes = 2 * static_cast<double>(model_shape("llama3-8b").parameters());
  const double cards = std::max(1.0, bytes / (0.9 * static_cast<double>(card.memory_bytes)));
  const double whole = cards > 1 ? static_cast<double>(static_cast<int64_t>(cards) + 1) : 1;
  fit.possible = true;
  const double rate = card.memory_bytes_per_s * whole / bytes;
  fit.card_hours = 1e6 / rate / 3600 * whole;
  fit.note = format("at most %.0f tokens/s on %.0f card%s; card-hours of 1e6 tokens",
                    rate,
                    whole,
                    whole > 1 ? "s" : "");
  return fit;
}

}  // namespace

std::vector<CardResult> compare_cards(const PlanJob& job,
                                      const SearchSpace& space,
                                      const std::vector<std::string>& cards,
                                      const MakeCluster& make) {
  std::vector<CardResult> results;
  // All names first: a typing error in the last one should not cost the others' searches.
  for (const std::string& card : cards) {
    CardResult r;
    r.card = card;
    r.job = job;
    r.job.cluster = make(job.cluster.gpus, card);
    if (job.price_per_hour <= 0) r.job.price_per_hour = r.job.cluster.price_per_hour;
    results.push_back(std::move(r));
  }
  for (CardResult& r : results) {
    SearchSpace own = space;
    const Precision precision = available(space.base.precision, *r.job.cluster.card);
    if (precision != space.base.precision) {
      r.job.assumed.push_back(format("%s on %s, which has no %s",
                                     precision_name(precision),
                                     r.card.c_str(),
                                     precision_name(space.base.precision)));
      set_precision(own.base, precision);
    }
    Planner planner(r.job.model, r.job.cluster);
    try {
      const SearchResult found = search_strategies(planner, own, 1);
      if (found.best.empty()) {
        const Loss* nearest = nullptr;
        for (const Loss& loss : found.losses) {
          if (nearest == nullptr || loss.nearest.memory_bytes < nearest->nearest.memory_bytes) {
            nearest = &loss;
          }
        }
        r.limit = "Memory: no strategy fits";
        if (nearest != nullptr) {
          r.limit +=
              "; nearest: " + describe_strategy(nearest->nearest.strategy) + " " + nearest->detail;
        }
      } else {
        r.fits = true;
        r.job.strategy = found.best.front().strategy;
        r.prediction = planner.predict(r.job.strategy);
        r.cost = plan_cost(r.job, r.prediction);
        r.limit = limit_sentence(planner, r.job.strategy, r.prediction);
      }
    } catch (const ConfigError& error) {
      r.limit = error.what();
    }
    for (const Task& task : tasks())
      r.tasks.push_back(try_task(task, r.card, space.base.precision, make));
    r.tasks.push_back(decode(*r.job.cluster.card));
  }
  return results;
}

namespace {

// The fewest card-hours that any card needs for a task; 0: none can.
double least_hours(const std::vector<CardResult>& results, size_t task) {
  double least = 0;
  for (const CardResult& r : results) {
    const TaskFit& fit = r.tasks[task];
    if (fit.possible && (least == 0 || fit.card_hours < least)) least = fit.card_hours;
  }
  return least;
}

const char* verdict(const TaskFit& fit, double least) {
  if (!fit.possible) return "no";
  return fit.card_hours <= kSuits * least ? "suits" : "possible";
}

}  // namespace

std::string cards_text(const std::vector<CardResult>& results) {
  std::string out;
  if (results.empty()) return out;
  const PlanJob& first = results.front().job;
  out += format("%s on %d cards, global batch %lld x %lld tokens, the best strategy of each\n",
                first.model.name.c_str(),
                first.cluster.gpus,
                static_cast<long long>(first.strategy.global_batch),
                static_cast<long long>(first.strategy.sequence));
  for (const std::string& text : first.assumed) out += "Assumed: " + text + "\n";
  const bool priced = std::any_of(
      results.begin(), results.end(), [](const CardResult& r) { return r.job.price_per_hour > 0; });
  out += format("\n%-16s %9s %10s %7s %15s %14s%s\n",
                "card",
                "step",
                "tokens/s",
                "MFU %",
                "GiB a card",
                format("GPU-h/%g", first.tokens).c_str(),
                priced ? "      money" : "");
  for (const CardResult& r : results) {
    if (!r.fits) {
      out += format("%-16s does not fit\n", r.card.c_str());
      continue;
    }
    const Prediction& p = r.prediction;
    const double peak = p.memory[static_cast<size_t>(p.fullest_stage)].total();
    out += format("%-16s %9s %10s %7.1f %15s %14.4g",
                  r.card.c_str(),
                  format_ns(p.time.step_ns).c_str(),
                  format_count(p.tokens_per_s).c_str(),
                  100 * p.mfu,
                  format("%.1f of %.1f", peak / (1 << 30), p.capacity_bytes / (1 << 30)).c_str(),
                  r.cost.gpu_hours);
    if (priced) {
      out += r.job.price_per_hour > 0 ? format(" %10.4g", r.cost.money) : format(" %10s", "-");
    }
    out += "\n";
  }
  out += "\n";
  for (const CardResult& r : results) {
    out += r.card + ": ";
    if (r.fits) out += describe_strategy(r.job.strategy) + "\n  ";
    out += r.limit + "\n";
  }
  out +=
      "\nWhich tasks suit which card: card-hours, each with its best strategy; \"suits\" is "
      "within 1.5\ntimes the best card's. Preparing data is bound by hosts and disks, which no "
      "profile tells.\n";
  for (size_t t = 0; t < results.front().tasks.size(); ++t) {
    out += results.front().tasks[t].task + "\n";
    const double least = least_hours(results, t);
    for (const CardResult& r : results) {
      const TaskFit& fit = r.tasks[t];
      out += format("  %-16s %-9s", r.card.c_str(), verdict(fit, least));
      out += fit.possible ? format("%10.4g  ", fit.card_hours) : format("%10s  ", "-");
      out += fit.note + "\n";
    }
  }
  return out;
}

Json cards_json(const std::vector<CardResult>& results) {
  Json rows = Json::array();
  for (const CardResult& r : results) {
    Json row = {{"card", r.card}, {"fits", r.fits}, {"limit", r.limit}};
    if (r.fits) {
      row.update(job_json(r.job));
      row["prediction"] = prediction_json(r.job, r.prediction);
    }
    Json fits = Json::array();
    for (size_t t = 0; t < r.tasks.size(); ++t) {
      const TaskFit& fit = r.tasks[t];
      fits.push_back({{"task", fit.task},
                      {"verdict", verdict(fit, least_hours(results, t))},
                      {"card_hours", fit.possible ? Json(fit.card_hours) : Json()},
                      {"note", fit.note}});
    }
    row["tasks"] = std::move(fits);
    rows.push_back(std::move(row));
  }
  return {{"format", "vitrine plan compare-cards"}, {"version", 1}, {"cards", std::move(rows)}};
}

}  // namespace vitrine

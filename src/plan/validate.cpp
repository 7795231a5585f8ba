// Fitting and judging by sources.
#include "plan/validate.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>

#include "core/error.h"
#include "core/quantile.h"
#include "plan/predict.h"

namespace vitrine {
namespace {

// Rows of one source that a fit looks at; more would only repeat the same shapes.
constexpr size_t kFitRowsPerSource = 24;

struct Row {
  const Measurement* measurement = nullptr;
  std::shared_ptr<Planner> planner;
};

// A group's constants on the row's own card, whose ceilings and power limit stay its own.
void set_constants(const Row& row, const Efficiency& fitted) {
  Efficiency own = row.measurement->prior;
  own.matmul = fitted.matmul;
  own.memory = fitted.memory;
  own.launch_ns = fitted.launch_ns;
  own.communication = fitted.communication;
  row.planner->set_efficiency(own);
}

double predicted_seconds(const Row& row, const Efficiency& efficiency) {
  set_constants(row, efficiency);
  return row.planner->predict(row.measurement->strategy).time.step_ns * 1e-9;
}

// Mean over sources of the mean error of their rows, errors counted in logarithms and outliers
// cut: a source with many rows does not outvote the others.
double loss(const std::vector<Row>& rows, const Efficiency& efficiency) {
  std::map<std::string, std::pair<double, double>> sums;  // by source: error, rows
  for (const Row& row : rows) {
    const double error =
        std::abs(std::log(predicted_seconds(row, efficiency) / row.measurement->step_s));
    auto& [sum, count] = sums[row.measurement->source];
    sum += std::min(error, 0.7);
    count += 1;
  }
  double total = 0, weights = 0;
  for (const auto& [source, sum] : sums) {
    const double weight = std::sqrt(sum.second);
    total += weight * sum.first / sum.second;
    weights += weight;
  }
  return weights > 0 ? total / weights : 0;
}

std::vector<Row> thinned(const std::vector<Row>& rows) {
  std::map<std::string, std::vector<Row>> by_source;
  for (const Row& row : rows) by_source[row.measurement->source].push_back(row);
  std::vector<Row> out;
  for (const auto& [source, all] : by_source) {
    const size_t take = std::min(all.size(), kFitRowsPerSource);
    for (size_t i = 0; i < take; ++i) out.push_back(all[i * all.size() / take]);
  }
  return out;
}

// How far the constants are from what is assumed without measurements: keeps those that the rows
// say nothing about.
double distance(const Efficiency& a, const Efficiency& b) {
  const auto square = [](double x) { return x * x; };
  return square(std::log(a.matmul / b.matmul)) +
         square(std::log(a.communication / b.communication)) +
         square(std::log(a.launch_ns / b.launch_ns));
}
constexpr double kPriorWeight = 0.01;

// Coordinate descent over the three constants, steps halved when nothing improves.
Efficiency fit(const std::vector<Row>& all, Efficiency start) {
  const std::vector<Row> rows = thinned(all);
  if (rows.empty()) return start;
  const Efficiency prior = start;
  double best = loss(rows, start);
  double step = 0.2;
  const auto bounded = [](Efficiency e) {
    e.matmul = std::clamp(e.matmul, 0.15, 1.0);
    e.communication = std::clamp(e.communication, 0.1, 1.2);
    e.launch_ns = std::clamp(e.launch_ns, 500.0, 200000.0);
    return e;
  };
  for (int round = 0; round < 24 && step > 0.015; ++round) {
    bool better = false;
    for (int parameter = 0; parameter < 3; ++parameter) {
      for (const double factor : {1 + step, 1 / (1 + step)}) {
        Efficiency candidate = start;
        double& value = parameter == 0   ? candidate.matmul
                        : parameter == 1 ? candidate.communication
                                         : candidate.launch_ns;
        value *= factor;
        candidate = bounded(candidate);
        const double now = loss(rows, candidate) + kPriorWeight * distance(candidate, prior);
        if (now < best - 1e-6) {
          best = now;
          start = candidate;
          better = true;
        }
      }
    }
    if (!better) step /= 2;
  }
  return start;
}

// What a group starts from: the constants of the same software on other cards, as far as `source`
// is not in them. Products as a share of what each card's largest ones reach.
Efficiency from_other_cards(const Efficiency& prior,
                            const std::vector<std::pair<Efficiency, Efficiency>>& others) {
  if (others.empty()) return prior;
  std::vector<double> matmul, launch, communication;
  for (const auto& [own_prior, fitted] : others) {
    matmul.push_back(fitted.matmul / own_prior.ceiling);
    launch.push_back(fitted.launch_ns);
    communication.push_back(fitted.communication);
  }
  Efficiency start = prior;
  start.matmul = std::min(1.0, prior.ceiling * quantile_between(matmul, 0.5));
  start.launch_ns = quantile_between(launch, 0.5);
  start.communication = quantile_between(communication, 0.5);
  return start;
}

}  // namespace

ErrorSummary summarise(std::vector<double> errors) {
  ErrorSummary s;
  s.rows = errors.size();
  s.bias = quantile_between(errors, 0.5);
  for (double& e : errors) e = std::abs(e);
  s.median_abs_error = quantile_between(errors, 0.5);
  s.p90_abs_error = quantile_between(errors, 0.9);
  return s;
}

Validation validate(const Measurements& measurements, const ValidateOptions& options) {
  Validation out;
  out.refused = measurements.refused;
  std::vector<Row> rows;
  for (const Measurement& m : measurements.taken) {
    rows.push_back({&m, std::make_shared<Planner>(m.model, m.cluster)});
  }
  std::map<std::string, std::vector<Row>> groups;
  std::map<std::string, std::set<std::string>> sources;
  for (const Row& row : rows) {
    if (row.measurement->step_s <= 0) continue;
    groups[row.measurement->group].push_back(row);
    sources[row.measurement->group].insert(row.measurement->source);
  }
  std::map<std::pair<std::string, std::string>, Efficiency> judged_by;
  if (options.fit) {
    for (const auto& [group, members] : groups) {
      Efficiency start = members.front().measurement->prior;
      start.era = group;
      start.fitted_to = "";
      Efficiency whole = fit(members, start);
      whole.fitted_to = std::to_string(members.size()) + " rows of " +
                        std::to_string(sources[group].size()) + " sources";
      out.fitted[group] = whole;
    }
    for (const auto& [group, members] : groups) {
      Efficiency start = members.front().measurement->prior;
      const std::string software = start.era;
      start.era = group;
      start.fitted_to = "";
      for (const std::string& source : sources[group]) {
        std::vector<Row> others;
        for (const Row& row : members) {
          if (row.measurement->source != source) others.push_back(row);
        }
        // Starting where the whole fit ended would let the left-out rows help.
        std::vector<std::pair<Efficiency, Efficiency>> relatives;
        for (const auto& [other, rows_of] : groups) {
          const Efficiency& prior_of = rows_of.front().measurement->prior;
          if (other == group || prior_of.era != software || sources[other].contains(source)) {
            continue;
          }
          relatives.emplace_back(prior_of, out.fitted.at(other));
        }
        const Efficiency fold =
            others.empty() ? from_other_cards(start, relatives) : fit(others, start);
        judged_by[{group, source}] = fold;
        out.folds[group + " without " + source] = fold;
      }
    }
  }
  std::vector<double> several, all, memory;
  std::map<std::string, std::vector<double>> step_by_source, memory_by_source, by_card;
  for (size_t i = 0; i < rows.size(); ++i) {
    const Measurement& m = *rows[i].measurement;
    PredictedRow predicted;
    predicted.measurement = i;
    const auto judged = judged_by.find({m.group, m.source});
    if (judged != judged_by.end()) set_constants(rows[i], judged->second);
    const Prediction p = rows[i].planner->predict(m.strategy);
    predicted.memory_bytes = p.memory[static_cast<size_t>(p.fullest_stage)].total();
    predicted.fits = p.fits;
    SourceSummary& summary = out.by_source[m.source];
    if (m.step_s > 0) {
      predicted.step_s = p.time.step_ns * 1e-9;
      const double error = predicted.step_s / m.step_s - 1;
      all.push_back(error);
      step_by_source[m.source].push_back(error);
      if (!m.single_gpu()) {
        several.push_back(error);
        by_card[m.cluster.profile].push_back(error);
      }
    }
    if (m.memory_bytes > 0) {
      const MemoryByCategory& b = p.memory[static_cast<size_t>(p.fullest_stage)].bytes;
      const auto of = [&](MemoryCategory category) {
        return static_cast<double>(b[static_cast<size_t>(category)]);
      };
      if (m.memory_by_arithmetic) {
        predicted.memory_bytes = of(MemoryCategory::kParameters) + of(MemoryCategory::kGradients) +
                                 of(MemoryCategory::kOptimizer) + of(MemoryCategory::kActivations);
      }
      const double error = predicted.memory_bytes / m.memory_bytes - 1;
      memory.push_back(error);
      memory_by_source[m.source].push_back(error);
    }
    // A memory outcome is known where a row says that it ran out, or that it ran in a table that
    // has such rows.
    if (m.out_of_memory || m.ran) {
      ++summary.oom_rows;
      if (p.fits != m.out_of_memory) ++summary.oom_right;
    }
    out.rows.push_back(predicted);
  }
  out.rows_taken = rows.size();
  out.step_time = summarise(several);
  out.step_time_all = summarise(all);
  out.memory = summarise(memory);
  for (const auto& [source, errors] : step_by_source) {
    out.by_source[source].step_time = summarise(errors);
  }
  for (const auto& [source, errors] : memory_by_source) {
    out.by_source[source].memory = summarise(errors);
  }
  for (const auto& [card, errors] : by_card) out.by_card[card] = summarise(errors);
  for (const RefusedRow& row : out.refused) ++out.by_source[row.source].refused;
  for (const auto& [source, summary] : out.by_source) {
    out.oom_rows += summary.oom_rows;
    out.oom_right += summary.oom_right;
  }
  return out;
}

}  // namespace vitrine

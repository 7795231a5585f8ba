// Enumeration, and pruning by bounds.
#include "plan/search.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>

#include "core/error.h"
#include "core/format.h"
#include "plan/search_bound.h"

namespace vitrine {
namespace {

double real(int64_t value) { return static_cast<double>(value); }

std::vector<int> divisors(int64_t whole, int64_t most) {
  std::vector<int> out;
  for (int64_t d = 1; d <= std::min(whole, most); ++d) {
    if (whole % d == 0) out.push_back(static_cast<int>(d));
  }
  return out;
}

template <typename T>
std::vector<T> held_or(const std::optional<T>& held, std::vector<T> all) {
  return held ? std::vector<T>{*held} : std::move(all);
}

struct Enumerator {
  Planner& planner;
  const SearchSpace& space;
  SearchResult& result;
  std::vector<Candidate> fit;
  std::map<std::string, Loss> losses;
  std::string last_refusal;

  void lose(const std::string& reason, const Candidate& c, bool nearer, std::string detail) {
    Loss& loss = losses[reason];
    if (loss.count++ == 0 || nearer) {
      loss.reason = reason;
      loss.nearest = c;
      loss.detail = std::move(detail);
    }
  }

  // Whether the candidate fits; counts it either way.
  bool consider(const ClusterStrategy& s) {
    Candidate c;
    c.strategy = s;
    c.memory_bytes = 0;
    try {
      for (const StageMemory& stage : planner.memory(s)) {
        c.memory_bytes = std::max(c.memory_bytes, stage.total());
      }
    } catch (const ConfigError& error) {
      last_refusal = error.what();
      ++result_refused;
      return true;  // nothing that offload would mend
    }
    ++result.considered;
    const double capacity = usable_bytes(*planner.cluster().card);
    if (c.memory_bytes <= capacity) {
      fit.push_back(c);
      return true;
    }
    const double over = c.memory_bytes / capacity;
    const char* reason = over < 1.1  ? "does not fit: less than 10 % too large"
                         : over < 2  ? "does not fit: up to twice the card's memory"
                         : over < 10 ? "does not fit: 2 to 10 times the card's memory"
                                     : "does not fit: over 10 times the card's memory";
    const auto known = losses.find(reason);
    lose(reason,
         c,
         known == losses.end() || c.memory_bytes < known->second.nearest.memory_bytes,
         "needs " + format_bytes(c.memory_bytes) + " of " + format_bytes(capacity));
    return false;
  }

  void with_offload(ClusterStrategy s) {
    if (consider(s) || !space.offload) return;
    s.optimizer_tier = s.gradient_tier = Tier::kHost;
    if (host_holds(s) && consider(s)) return;
    if (s.zero_stage < 3 || int64_t{s.mesh.data} * s.mesh.context == 1) return;
    s.parameter_tier = Tier::kHost;
    if (host_holds(s)) consider(s);
  }

  // The node's memory has to hold what its cards send there.
  bool host_holds(const ClusterStrategy& s) const {
    const Cluster& cluster = planner.cluster();
    if (cluster.host_memory_bytes <= 0) return false;
    const double shards = s.zero_stage >= 1 ? real(int64_t{s.mesh.data} * s.mesh.context) : 1;
    const double own = parameters / (s.mesh.tensor * s.mesh.pipeline) / shards *
                       (s.master_bytes + s.moment_bytes + s.gradient_bytes +
                        (s.parameter_tier == Tier::kHost ? s.weight_bytes : 0));
    return own * std::min(cluster.gpus, cluster.gpus_per_node) <= cluster.host_memory_bytes;
  }

  void schedules(ClusterStrategy s) {
    const int64_t layers = planner.model().stack.layers;
    const int p = s.mesh.pipeline;
    if (p == 1) {
      if (space.schedule && *space.schedule != PipelineKind::k1F1B &&
          *space.schedule != PipelineKind::kGPipe) {
        return;
      }
      s.pipeline = PipelineKind::k1F1B;
      s.interleave = 1;
      with_offload(s);
      return;
    }
    const auto kinds = held_or<PipelineKind>(space.schedule,
                                             {PipelineKind::k1F1B,
                                              PipelineKind::kInterleaved,
                                              PipelineKind::kZbH1,
                                              PipelineKind::kZbH2,
                                              PipelineKind::kZbV});
    for (const PipelineKind kind : kinds) {
      s.pipeline = kind;
      s.interleave = 1;
      if (kind != PipelineKind::kInterleaved) {
        if (kind == PipelineKind::kZbV && 2 * p > layers) continue;
        with_offload(s);
        continue;
      }
      if (s.accumulation() < p) continue;
      for (const int v : held_or<int>(space.interleave, {2, 3, 4, 5, 6, 7, 8, 10, 12, 16})) {
        if (v < 2 || int64_t{v} * p > layers + 2) continue;
        s.interleave = v;
        with_offload(s);
      }
    }
  }

  void shards(ClusterStrategy s) {
    const int64_t ranks = int64_t{s.mesh.data} * s.mesh.context;
    for (const int stage : held_or<int>(space.zero_stage, {0, 1, 2, 3})) {
      if (stage > 0 && ranks == 1 && !space.zero_stage) continue;
      s.zero_stage = stage;
      s.shard_group = 0;
      // Gradients that are kept in shards are reduced after every micro-batch.
      s.reduce_each_micro_batch = stage >= 2;
      std::vector<int64_t> groups = {0};
      const int64_t node = planner.cluster().gpus_per_node / s.mesh.tensor;
      if (stage == 3 && node > 1 && node < ranks && ranks % node == 0) groups.push_back(node);
      for (const int64_t group : held_or<int64_t>(space.shard_group, groups)) {
        s.shard_group = stage == 3 ? group : 0;
        schedules(s);
      }
    }
  }

  void layouts() {
    const Cluster& cluster = planner.cluster();
    const ModelShape& model = planner.model();
    parameters = real(model.parameters());
    ClusterStrategy s = space.base;
    const int64_t gpus = cluster.gpus;
    const auto tensors =
        held_or<int>(space.tensor, divisors(gpus, 2 * int64_t{cluster.gpus_per_node}));
    for (const int t : tensors) {
      const auto pipelines =
          held_or<int>(space.pipeline, divisors(gpus / std::max(1, t), model.stack.layers));
      for (const int p : pipelines) {
        std::vector<int> contexts = {1};
        for (const int c : divisors(gpus / std::max<int64_t>(1, int64_t{t} * p), 64)) {
          // Parts under 1,024 tokens are all latency.
          if (c > 1 && s.sequence % (2 * c) == 0 && s.sequence / c >= 1024) contexts.push_back(c);
        }
        for (const int c : held_or<int>(space.context, contexts)) {
          const int64_t inner = int64_t{t} * p * c;
          s.mesh = {
              static_cast<int>(std::max<int64_t>(1, gpus / std::max<int64_t>(1, inner))), t, p, c};
          s.sequence_parallel = t > 1 ? true : space.base.sequence_parallel;
          experts(s);
        }
      }
    }
  }

  void experts(ClusterStrategy s) {
    const int64_t all = planner.model().stack.experts;
    std::vector<int> degrees = {1};
    if (all > 0) {
      for (const int e : divisors(all, 1 << 20)) {
        if (e > 1 && int64_t{s.mesh.data} * s.mesh.context * s.mesh.tensor % e == 0) {
          degrees.push_back(e);
        }
      }
    }
    for (const int e : held_or<int>(space.expert, degrees)) {
      s.expert = e;
      // One check for all that differ below in what always combines.
      s.zero_stage = 1;
      s.shard_group = 0;
      s.pipeline = PipelineKind::k1F1B;
      s.interleave = 1;
      std::vector<int64_t> micros;
      for (int64_t b = 1; b <= space.most_micro; b *= 2) {
        if (s.global_batch % (b * s.mesh.data) == 0) micros.push_back(b);
      }
      if (micros.empty()) micros.push_back(1);  // refused below, with the arithmetic
      for (const int64_t b : held_or<int64_t>(space.micro_batch, micros)) {
        s.micro_batch = b;
        try {
          check_strategy(s, planner.model(), planner.cluster());
        } catch (const ConfigError& error) {
          last_refusal = error.what();
          ++result_refused;
          continue;
        }
        for (const Recompute r : held_or<Recompute>(
                 space.recompute, {Recompute::kNone, Recompute::kSelective, Recompute::kFull})) {
          s.recompute = r;
          shards(s);
        }
      }
    }
  }

  double parameters = 0;
  size_t result_refused = 0;
};

}  // namespace

SearchResult search_strategies(Planner& planner, const SearchSpace& space, size_t top) {
  const auto begin = std::chrono::steady_clock::now();
  SearchResult result;
  Enumerator all{planner, space, result, {}, {}, {}};
  all.layouts();
  if (result.considered == 0) {
    throw ConfigError("no strategy divides this job: " + all.last_refusal);
  }
  result.fit = all.fit.size();
  for (Candidate& c : all.fit) c.least_ns = least_step_ns(planner, c.strategy);
  std::sort(all.fit.begin(), all.fit.end(), [](const Candidate& a, const Candidate& b) {
    return a.least_ns != b.least_ns ? a.least_ns < b.least_ns : a.memory_bytes < b.memory_bytes;
  });
  // Simulated so far: memory -> shortest time among those that need no more.
  std::map<double, double> front;
  const auto dominated = [&](const Candidate& c, double time) {
    auto it = front.upper_bound(c.memory_bytes);
    return it != front.begin() && std::prev(it)->second <= time;
  };
  std::vector<Candidate*> timed;
  std::multiset<double> best_times;
  for (Candidate& c : all.fit) {
    const bool enough = best_times.size() >= top;
    if (enough && c.least_ns >= *best_times.rbegin() &&
        (dominated(c, c.least_ns) || c.least_ns > kParetoReach * *best_times.begin())) {
      continue;
    }
    c.step_ns = planner.predict(c.strategy).time.step_ns;
    ++result.simulated;
    timed.push_back(&c);
    best_times.insert(c.step_ns);
    if (best_times.size() > top) best_times.erase(std::prev(best_times.end()));
    if (!dominated(c, c.step_ns)) {
      auto it = front.insert_or_assign(c.memory_bytes, c.step_ns).first;
      for (++it; it != front.end() && it->second >= c.step_ns;) it = front.erase(it);
    }
  }
  std::stable_sort(timed.begin(), timed.end(), [](const Candidate* a, const Candidate* b) {
    return a->step_ns != b->step_ns ? a->step_ns < b->step_ns : a->memory_bytes < b->memory_bytes;
  });
  for (size_t i = 0; i < timed.size() && i < top; ++i) result.best.push_back(*timed[i]);
  double least = 1e300;
  for (const Candidate* c : timed) {
    if (c->step_ns > kParetoReach * timed.front()->step_ns || c->memory_bytes >= least) continue;
    least = c->memory_bytes;
    result.pareto.push_back(*c);
  }
  if (!result.best.empty()) {
    const Candidate& best = result.best.front();
    const double worst = result.best.back().step_ns;
    for (const Candidate& c : all.fit) {
      const double time = c.step_ns > 0 ? c.step_ns : c.least_ns;
      if (c.step_ns > 0 && c.step_ns <= worst) continue;
      const std::string reason = slower_because(planner, c.strategy, best.strategy, best.step_ns);
      const auto known = all.losses.find(reason);
      const auto time_of = [](const Candidate& n) {
        return n.step_ns > 0 ? n.step_ns : n.least_ns;
      };
      all.lose(reason,
               c,
               known == all.losses.end() || time < time_of(known->second.nearest),
               format("%s%s against %s",
                      c.step_ns > 0 ? "" : "at least ",
                      format_ns(time).c_str(),
                      format_ns(best.step_ns).c_str()));
    }
  }
  for (auto& [reason, loss] : all.losses) result.losses.push_back(std::move(loss));
  std::stable_sort(result.losses.begin(), result.losses.end(), [](const Loss& a, const Loss& b) {
    return a.count > b.count;
  });
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

}  // namespace vitrine

// Text of predictions.
#include "plan/plan_text.h"

#include <algorithm>
#include <cmath>

#include "core/format.h"
#include "plan/strategy_json.h"

namespace vitrine {
namespace {

constexpr size_t kRowsShown = 12;

long long ll(int64_t value) { return static_cast<long long>(value); }
double real(int64_t value) { return static_cast<double>(value); }

// "8.03 B", "405.9 B": what models are called by.
std::string billions(int64_t parameters) {
  const double b = real(parameters) * 1e-9;
  return b >= 1000  ? format("%.2f T", b / 1000)
         : b >= 100 ? format("%.1f B", b)
         : b >= 1   ? format("%.2f B", b)
                    : format("%.1f M", b * 1000);
}

std::string gib(double bytes) {
  if (bytes <= 0) return "-";
  const double value = bytes / (1 << 30);
  return value < 0.005 ? "<0.01" : format("%.2f", value);
}

// "1e9": tokens of a training run.
std::string token_count(double tokens) { return format("%g", tokens); }

struct Column {
  const char* title;
  std::vector<MemoryCategory> categories;
};
const std::vector<Column>& columns() {
  static const std::vector<Column> all = {
      {"weights", {MemoryCategory::kParameters}},
      {"grads", {MemoryCategory::kGradients}},
      {"optim", {MemoryCategory::kOptimizer}},
      {"activ", {MemoryCategory::kActivations}},
      {"gathered", {MemoryCategory::kGathered}},
      {"buffers", {MemoryCategory::kCommunication, MemoryCategory::kStaging}},
      {"scratch", {MemoryCategory::kWorkspace}}};
  return all;
}

double of_column(const StageMemory& stage, const Column& column) {
  double sum = 0;
  for (const MemoryCategory c : column.categories) {
    sum += real(stage.bytes[static_cast<size_t>(c)]);
  }
  return sum;
}

bool alike(const StageMemory& a, const StageMemory& b) {
  for (const Column& column : columns()) {
    const double x = of_column(a, column), y = of_column(b, column);
    if (std::abs(x - y) > 5e6) return false;
  }
  return true;
}

void memory_table(const Prediction& p, std::string& out) {
  std::vector<const Column*> shown;
  for (const Column& column : columns()) {
    if (std::any_of(p.memory.begin(), p.memory.end(), [&](const StageMemory& stage) {
          return of_column(stage, column) > 0;
        })) {
      shown.push_back(&column);
    }
  }
  out += format("%-12s", p.memory.size() > 1 ? "GiB, stage" : "GiB");
  for (const Column* column : shown) out += format(" %9s", column->title);
  out += format(" %9s %9s %9s\n", "context", "fragment", "all");
  for (size_t i = 0; i < p.memory.size();) {
    size_t last = i;
    while (last + 1 < p.memory.size() && alike(p.memory[i], p.memory[last + 1])) ++last;
    const StageMemory& stage = p.memory[i];
    std::string name = p.memory.size() == 1 ? "a card"
                       : last == i          ? format("%zu", i)
                                            : format("%zu - %zu", i, last);
    const auto fullest = static_cast<size_t>(p.fullest_stage);
    if (p.memory.size() > 1 && fullest >= i && fullest <= last) name += " *";
    out += format("%-12s", name.c_str());
    for (const Column* column : shown)
      out += format(" %9s", gib(of_column(stage, *column)).c_str());
    out += format(" %9s %9s %9s\n",
                  gib(stage.context_bytes).c_str(),
                  gib(stage.fragmentation_bytes).c_str(),
                  gib(stage.total()).c_str());
    i = last + 1;
  }
}

}  // namespace

PlanCost plan_cost(const PlanJob& job, const Prediction& p) {
  PlanCost cost;
  cost.hours = job.tokens / p.tokens_per_s / 3600;
  cost.gpu_hours = cost.hours * job.strategy.world();
  cost.money = cost.gpu_hours * job.price_per_hour;
  return cost;
}

std::string job_text(const PlanJob& job) {
  const Cluster& c = job.cluster;
  const ClusterStrategy& s = job.strategy;
  std::string out = job.model.name + ": " + billions(job.model.parameters()) + " parameters";
  if (job.model.active_parameters() != job.model.parameters()) {
    out += ", " + billions(job.model.active_parameters()) + " of them a token";
  }
  out += format(
      "; %lld layers of width %lld\n", ll(job.model.stack.layers), ll(job.model.stack.hidden));
  out += format("%d x %s", c.gpus, c.profile.c_str());
  if (c.gpus > 1) {
    out += format(", %d node%s", c.nodes(), c.nodes() == 1 ? "" : "s");
    if (c.nodes() > 1) out += format(" of %d", c.gpus_per_node);
    if (c.link_bytes_per_s > 0 && c.links != NodeLinks::kPcie) {
      out += format("; %.0f GB/s a card between cards of a node", c.link_bytes_per_s * 1e-9);
    } else {
      out += format("; PCIe, %.0f GB/s a card, between cards of a node", c.pcie_bytes_per_s * 1e-9);
    }
    if (c.nodes() > 1) out += format(", %.1f GB/s between nodes", c.network_bytes_per_s * 1e-9);
  }
  out += format("\n%s\n", describe_strategy(s).c_str());
  out += format("Global batch %lld x %lld tokens, %s, %lld micro-batch%s a rank and step\n",
                ll(s.global_batch),
                ll(s.sequence),
                precision_name(s.precision),
                ll(s.accumulation()),
                s.accumulation() == 1 ? "" : "es");
  for (const std::string& text : job.assumed) out += "Assumed: " + text + "\n";
  return out;
}

std::string prediction_text(const PlanJob& job, const Prediction& p) {
  std::string out = "\nMemory at the peak\n";
  memory_table(p, out);
  const StageMemory& fullest = p.memory[static_cast<size_t>(p.fullest_stage)];
  const double left = p.capacity_bytes - fullest.total();
  out += format("%s: %s of %s, %s %s; peak in the %s\n",
                p.fits ? "Fits" : "DOES NOT FIT",
                format_bytes(fullest.total()).c_str(),
                format_bytes(p.capacity_bytes).c_str(),
                format_bytes(std::abs(left)).c_str(),
                left >= 0 ? "free" : "too much",
                fullest.peak_moment.c_str());
  if (p.host_bytes > 0) {
    out += format("On the host: %s a node of %s\n",
                  format_bytes(p.host_bytes).c_str(),
                  format_bytes(job.cluster.host_memory_bytes).c_str());
  }
  if (p.disk_bytes > 0) {
    out += format("On disk: %s a node\n", format_bytes(p.disk_bytes).c_str());
  }
  out += format("\nStep %s%s", format_ns(p.time.step_ns).c_str(), p.fits ? "" : ", if it did fit");
  if (p.memory.size() > 1) out += format(" (bound by stage %d)", p.time.bounding_stage);
  out += "\n";
  for (const StepPart& part : step_parts(p)) {
    out += format("  %-32s %10s %6.1f %%\n",
                  part.name.c_str(),
                  format_ns(part.ns).c_str(),
                  100 * part.ns / p.time.step_ns);
  }
  out += format("\n%s tokens/s (%s a card), %.1f model TFLOP/s a card, MFU %.1f %%, HFU %.1f %%\n",
                format_count(p.tokens_per_s).c_str(),
                format_count(p.tokens_per_s / job.strategy.world()).c_str(),
                p.tflops_per_gpu,
                100 * p.mfu,
                100 * p.hfu);
  out +=
      "  MFU: 3 x the forward's products and attention (half where causal), no recomputation; "
      "HFU: as executed\n";
  out += "A card sends in a step:";
  const std::pair<const char*, double> sent[] = {{"gathers", p.traffic.gather},
                                                 {"gradients", p.traffic.reduce},
                                                 {"new weights", p.traffic.publish},
                                                 {"pipeline", p.traffic.pipeline},
                                                 {"tensor", p.traffic.tensor},
                                                 {"context", p.traffic.context},
                                                 {"experts", p.traffic.expert},
                                                 {"host", p.traffic.offload}};
  const char* comma = "";
  for (const auto& [name, bytes] : sent) {
    if (bytes <= 0) continue;
    out += format("%s %s %s", comma, name, format_bytes(bytes).c_str());
    comma = ",";
  }
  out +=
      *comma == '\0' ? " nothing\n" : format("; all %s\n", format_bytes(p.traffic.total()).c_str());
  const PlanCost cost = plan_cost(job, p);
  out += format("%s tokens: %.4g GPU-hours, %.4g hours",
                token_count(job.tokens).c_str(),
                cost.gpu_hours,
                cost.hours);
  if (job.price_per_hour > 0) {
    out += format(", %.4g at %.4g a GPU-hour", cost.money, job.price_per_hour);
  }
  return out + "\n";
}

std::string changes_text(const Prediction& before,
                         const std::vector<Change>& changes,
                         size_t most) {
  if (changes.empty()) {
    return before.fits ? "No change of one knob makes it faster.\n"
                       : "No change of one knob makes it fit: try --search, or more cards.\n";
  }
  const bool helps = changes.front().prediction.fits;
  std::string out = before.fits ? "Nearest changes that are faster:\n"
                    : helps     ? "Nearest changes that make it fit:\n"
                                : "No change of one knob makes it fit; nearest:\n";
  for (size_t i = 0; i < changes.size() && i < most; ++i) {
    const Change& c = changes[i];
    out += format("  %-46s step %s", c.what.c_str(), format_ns(c.prediction.time.step_ns).c_str());
    if (before.fits) out += format(" (%+.1f %% tokens/s)", 100 * (c.speed - 1));
    const double peak =
        c.prediction.memory[static_cast<size_t>(c.prediction.fullest_stage)].total();
    out +=
        format(", %s a card (%+.2f GiB)\n", format_bytes(peak).c_str(), c.memory_bytes / (1 << 30));
  }
  return out;
}

std::string search_text(const SearchResult& r) {
  std::string out = format("%zu strategies, %zu fit, %zu simulated, %.2f s\n",
                           r.considered,
                           r.fit,
                           r.simulated,
                           r.seconds);
  if (r.best.empty()) out += "\nNo strategy fits.\n";
  const auto rows = [&](const char* title, const std::vector<Candidate>& all) {
    if (all.empty()) return;
    out += format("\n%s\n    %9s %9s %9s  strategy\n", title, "step", "tokens/s", "GiB");
    for (size_t i = 0; i < all.size(); ++i) {
      // A long list in even steps, its ends among them.
      if (all.size() > kRowsShown && i > 0 &&
          i * (kRowsShown - 1) / (all.size() - 1) ==
              (i - 1) * (kRowsShown - 1) / (all.size() - 1)) {
        continue;
      }
      const Candidate& c = all[i];
      const double tokens =
          real(c.strategy.global_batch) * real(c.strategy.sequence) / c.step_ns * 1e9;
      out += format("%3zu %9s %9s %9.1f  %s\n",
                    i + 1,
                    format_ns(c.step_ns).c_str(),
                    format_count(tokens).c_str(),
                    c.memory_bytes / (1 << 30),
                    describe_strategy(c.strategy).c_str());
    }
  };
  rows("Fastest", r.best);
  rows("Speed against memory: each is the fastest that needs no more", r.pareto);
  if (r.pareto.size() > kRowsShown) {
    out += format("    (%zu in all: --json has them)\n", r.pareto.size());
  }
  out += "\nWhy the others are not among them\n";
  for (const Loss& loss : r.losses) {
    out += format("%8zu  %s\n          nearest: %s; %s\n",
                  loss.count,
                  loss.reason.c_str(),
                  describe_strategy(loss.nearest.strategy).c_str(),
                  loss.detail.c_str());
  }
  return out;
}

}  // namespace vitrine

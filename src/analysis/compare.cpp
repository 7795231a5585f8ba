// Comparison of two runs.
#include "analysis/compare.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "analysis/rules/job_view.h"
#include "core/format.h"

namespace vitrine {
namespace {

// Differences under this share of the step are what two recordings of one run differ by.
constexpr double kNoDifference = 0.02;

struct Sum {
  double value = 0, count = 0;
};
using Sums = std::map<std::string, Sum>;
using Value = std::function<int64_t(const RankView&)>;
using Adder = std::function<void(const RankFacts&, Sums&)>;

// Per step and rank: sums over a rank's recording divided by its steps, then the mean over ranks.
Sums mean_sums(const JobView& view, const Adder& add) {
  Sums all;
  for (const RankView& rank : view.ranks) {
    Sums own;
    add(*rank.facts, own);
    const size_t steps = view.has_steps ? std::max<size_t>(rank.facts->steps.size(), 1) : 1;
    const auto weight = static_cast<double>(steps * view.ranks.size());
    for (const auto& [name, sum] : own) {
      all[name].value += sum.value / weight;
      all[name].count += sum.count / weight;
    }
  }
  return all;
}

double mean(const JobView& view, const Value& value) {
  double sum = 0;
  for (const RankView& rank : view.ranks) sum += static_cast<double>(value(rank));
  return view.ranks.empty() ? 0 : sum / static_cast<double>(view.ranks.size());
}

ComparedRow row(const std::string& name, double a, double b) {
  ComparedRow out;
  out.name = name;
  out.a = a;
  out.b = b;
  out.difference = b - a;
  return out;
}

void add_kernel(const KernelRow& kernel, Sums& sums) {
  Sum& sum = sums[kernel_base_name(kernel.name)];
  sum.value += static_cast<double>(kernel.total_ns);
  sum.count += static_cast<double>(kernel.count);
}

void add_kernels(const RankFacts& rank, Sums& sums) {
  for (const KernelRow& kernel : rank.kernels) add_kernel(kernel, sums);
}

void add_computing(const RankFacts& rank, Sums& sums) {
  for (const KernelRow& kernel : rank.kernels) {
    if (!kernel.communication && !kernel.copy) add_kernel(kernel, sums);
  }
}

void add_operations(const RankFacts& rank, Sums& sums) {
  for (const OperatorRow& one : rank.operators) {
    if (one.device_ns <= 0) continue;
    sums[one.name].value += static_cast<double>(one.device_ns);
    sums[one.name].count += static_cast<double>(one.count);
  }
}

void add_host_operations(const RankFacts& rank, Sums& sums) {
  for (const OperatorRow& one : rank.operators) {
    sums[one.name].value += static_cast<double>(one.host_self_ns);
    sums[one.name].count += static_cast<double>(one.count);
  }
}

void add_collectives(const RankFacts& rank, Sums& sums) {
  for (const CollectiveUse& one : rank.collectives) {
    const std::string name = sized_name(one);
    sums[name].value += static_cast<double>(one.duration_ns);
    sums[name].count += 1;
  }
}

std::string read_names(const JobFacts& job) {
  if (job.ranks.empty()) return "nothing";
  std::string name = job.ranks.front().source;
  if (job.ranks.size() > 1) name += format(" and %zu more", job.ranks.size() - 1);
  return name;
}

class Comparer {
 public:
  Comparer(const JobFacts& a, const JobFacts& b) : a_(view_job(a)), b_(view_job(b)) {
    out_.per_step = a_.has_steps && b_.has_steps;
    if (!out_.per_step) {
      a_ = view_job(a, true);
      b_ = view_job(b, true);
    }
  }

  Comparison run() {
    out_.name_a = read_names(*a_.job);
    out_.name_b = read_names(*b_.job);
    out_.ranks_a = a_.job->ranks.size();
    out_.ranks_b = b_.job->ranks.size();
    out_.step = row(out_.per_step ? "step" : "recording",
                    static_cast<double>(a_.step_ns),
                    static_cast<double>(b_.step_ns));
    out_.step.in_a = !a_.ranks.empty();
    out_.step.in_b = !b_.ranks.empty();
    out_.comparable = out_.step.in_a && out_.step.in_b;
    if (out_.comparable) tell_time();
    memory();
    notes();
    out_.step.share = out_.comparable && out_.step.difference != 0 ? 1 : 0;
    out_.summary = summary();
    return std::move(out_);
  }

 private:
  void tell_time() {
    parts();
    out_.kernels = tables(add_kernels);
    out_.operations = tables(add_operations);
    out_.host_operations = tables(add_host_operations);
    out_.collectives = tables(add_collectives);
  }

  const char* per() const { return out_.per_step ? "a step" : "over the recording"; }

  void finish(std::vector<ComparedRow>& rows, bool of_time = true) const {
    for (ComparedRow& one : rows) {
      if (of_time && out_.step.difference != 0) one.share = one.difference / out_.step.difference;
    }
    std::stable_sort(rows.begin(), rows.end(), [](const ComparedRow& x, const ComparedRow& y) {
      return std::fabs(x.difference) > std::fabs(y.difference);
    });
  }

  void add(std::vector<ComparedRow>& rows, const std::string& name, const Value& value) const {
    rows.push_back(row(name, mean(a_, value), mean(b_, value)));
  }

  void parts() {
    auto& parts = out_.parts;
    add(parts, "compute", [](const RankView& r) { return r.compute_ns; });
    add(parts, "exposed communication", [](const RankView& r) {
      return r.exposed_communication_ns;
    });
    add(parts, "exposed copies", [](const RankView& r) { return r.exposed_copy_ns; });
    add(parts, "idle", [](const RankView& r) { return r.idle_ns; });
    for (size_t phase = 0; phase < kPhases; ++phase) {
      add(out_.phases, phase_name(static_cast<Phase>(phase)), [phase](const RankView& r) {
        return usual(
            r, [phase](const StepFacts& s) { return s.phase_ns[phase]; }, r.facts->phase_ns[phase]);
      });
    }
    for (size_t cause = 0; cause < kIdleCauses; ++cause) {
      add(out_.idle, idle_cause_name(static_cast<IdleCause>(cause)), [cause](const RankView& r) {
        return r.idle[cause];
      });
    }
    add(out_.host, "data loader", [](const RankView& r) { return r.data_host_ns; });
    if (out_.per_step) {
      add(out_.host, "synchronising calls", [](const RankView& r) {
        return usual(
            r, [](const StepFacts& s) { return s.sync_ns; }, 0);
      });
      add(out_.host, "allocator calls", [](const RankView& r) {
        return usual(
            r, [](const StepFacts& s) { return s.allocator_ns; }, 0);
      });
    }
    for (auto* rows : {&out_.parts, &out_.phases, &out_.idle, &out_.host}) finish(*rows);
  }

  std::vector<ComparedRow> tables(const Adder& adder) const {
    const Sums a = mean_sums(a_, adder), b = mean_sums(b_, adder);
    std::map<std::string, ComparedRow> rows;
    for (const auto& [name, sum] : a) {
      rows[name] = row(name, sum.value, 0);
      rows[name].count_a = sum.count;
      rows[name].in_b = false;
    }
    for (const auto& [name, sum] : b) {
      const bool in_a = a.count(name) > 0;
      ComparedRow& one = rows[name];
      one = row(name, in_a ? one.a : 0, sum.value);
      one.in_a = in_a;
      one.count_b = sum.count;
      if (in_a) one.count_a = a.at(name).count;
    }
    std::vector<ComparedRow> out;
    for (auto& [name, one] : rows) out.push_back(std::move(one));
    finish(out);
    return out;
  }

  void memory() {
    const auto peak = [](const JobFacts& job, int64_t MemoryFacts::*part) {
      int64_t most = 0;
      for (const RankFacts& rank : job.ranks) most = std::max(most, rank.memory.*part);
      for (const MemoryFacts& loose : job.loose_memory) most = std::max(most, loose.*part);
      return static_cast<double>(most);
    };
    const std::pair<const char*, int64_t MemoryFacts::*> rows[] = {
        {"peak allocated", &MemoryFacts::peak_allocated},
        {"peak reserved", &MemoryFacts::peak_reserved}};
    for (const auto& [name, part] : rows) {
      ComparedRow one = row(name, peak(*a_.job, part), peak(*b_.job, part));
      if (one.a == 0 && one.b == 0) continue;
      one.in_a = one.a > 0;
      one.in_b = one.b > 0;
      out_.memory.push_back(one);
    }
    finish(out_.memory, false);
  }

  void notes() {
    if (!out_.per_step) {
      out_.notes.push_back(
          "steps are not marked in both runs: figures are of the whole recordings, which may "
          "differ in "
          "what they cover");
    }
    if (out_.ranks_a != out_.ranks_b) {
      out_.notes.push_back(format(
          "%zu ranks against %zu: figures are means over the ranks", out_.ranks_a, out_.ranks_b));
    }
    const std::string device_a = a_.ranks.empty() ? "" : a_.ranks.front().facts->device;
    const std::string device_b = b_.ranks.empty() ? "" : b_.ranks.front().facts->device;
    if (device_a != device_b && !device_a.empty() && !device_b.empty()) {
      out_.notes.push_back("different cards: " + device_a + " against " + device_b);
    }
    for (const JobView* side : {&a_, &b_}) {
      if (side->ranks.empty()) {
        out_.notes.push_back(std::string(side == &a_ ? "the first" : "the second") +
                             " run has no work on a device: nothing to compare with");
      }
    }
  }

  // The parts of a step with idle time by cause: the candidates for what changed.
  std::vector<ComparedRow> causes() const {
    std::vector<ComparedRow> rows;
    ComparedRow data = row("the data loader", 0, 0);
    for (const ComparedRow& one : out_.parts) {
      if (one.name != "idle") rows.push_back(one);
    }
    const std::string loading = idle_cause_name(IdleCause::kDataLoading);
    for (const ComparedRow& one : out_.idle) {
      if (one.name == loading) {
        data = row(data.name, data.a + one.a, data.b + one.b);
      } else {
        rows.push_back(row("idle (" + one.name + ")", one.a, one.b));
      }
    }
    rows.push_back(data);
    finish(rows);
    return rows;
  }

  std::string change(const ComparedRow& one) const {
    return format("%s %s %s",
                  format_ns(std::fabs(one.difference)).c_str(),
                  per(),
                  one.difference < 0 ? "less" : "more");
  }

  std::string detail(const ComparedRow& cause) const {
    const bool compute = cause.name == "compute";
    if (!compute && cause.name != "exposed communication") return "";
    const std::vector<ComparedRow> table = compute ? tables(add_computing) : out_.collectives;
    for (const ComparedRow& one : table) {
      if ((one.difference < 0) != (cause.difference < 0)) continue;
      // Collectives are listed with their hidden time, so a row may be less, or more, than the
      // part.
      const bool most = 2 * std::fabs(one.difference) >= std::fabs(cause.difference);
      return std::string(most ? ", most of it in " : ", the largest part in ") +
             short_kernel_name(one.name) + " (" + change(one) + ")";
    }
    return "";
  }

  std::string summary() const {
    if (a_.ranks.empty() || b_.ranks.empty()) {
      return "Not comparable: one of the runs has no work on a device.";
    }
    const ComparedRow& step = out_.step;
    std::string text = format("%s takes %s instead of %s",
                              out_.per_step ? "A step" : "The recording",
                              format_ns(step.b).c_str(),
                              format_ns(step.a).c_str());
    if (step.a > 0) text += format(" (%+.1f %%)", 100 * step.difference / step.a);
    text += ". ";
    const bool same = std::fabs(step.difference) < kNoDifference * step.a;
    if (same) text += "That is no difference beyond what two recordings of one run have. ";
    // A cause goes in the direction of the change; against it, it is a side effect.
    std::vector<ComparedRow> named;
    for (const ComparedRow& one : causes()) {
      const bool matters = std::fabs(one.difference) >= kNoDifference * std::max(step.a, step.b);
      const bool with_it = same || (one.difference < 0) == (step.difference < 0);
      if (matters && with_it && named.size() < 3) named.push_back(one);
    }
    if (named.empty()) return text + "No single part explains it.";
    text += (same ? "Within it changed " : "The largest cause is ") + named.front().name + ": " +
            change(named.front()) + detail(named.front()) + ".";
    for (size_t i = 1; i < named.size(); ++i) {
      text += " Then " + named[i].name + ": " + change(named[i]) + detail(named[i]) + ".";
    }
    return text;
  }

  JobView a_, b_;
  Comparison out_;
};

}  // namespace

std::string kernel_base_name(const std::string& name) {
  std::string out;
  int depth = 0;
  for (size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    // "(anonymous namespace)" is part of a name, other parentheses begin its arguments.
    if (depth == 0 && name.compare(i, 21, "(anonymous namespace)") == 0) {
      out += "(anonymous namespace)";
      i += 20;
      continue;
    }
    if (c == '<') ++depth;
    if (depth == 0 && c == '(' && !out.empty()) {
      // "Memcpy HtoD (Pageable -> Device)" keeps its kind: no argument list follows a space.
      if (i > 0 && name[i - 1] == ' ') return name;
      break;
    }
    if (depth == 0) out += c;
    if (c == '>' && depth > 0) --depth;
  }
  if (depth != 0) return name;  // not a template's brackets
  if (out.starts_with("void ")) out.erase(0, 5);
  return out.empty() ? name : out;
}

Comparison compare(const JobFacts& a, const JobFacts& b) { return Comparer(a, b).run(); }

}  // namespace vitrine

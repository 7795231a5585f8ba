// Times of the engine's operations, passes and collectives on a machine that was calibrated.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "machines/measured.h"
#include "tape/tape.h"

namespace vitrine {

// Of CPU ranks of one host, as `vitrine train --ranks N` starts them: the processors shared out
// over the ranks, one thread each where there are more ranks than processors.
class MeasuredCosts {
 public:
  // `machine` must outlive this. Where operations were not measured in `compute`, those of f32
  // stand for them, which notes() says.
  MeasuredCosts(const MeasuredMachine& machine, DType compute, int ranks);

  int threads() const { return threads_; }  // of a rank
  int ranks() const { return ranks_; }
  int cpus() const { return machine_.cpus; }
  double handoff_ns() const { return machine_.handoff_ns; }

  // Between measured shapes: the nearest in logarithms count most. An operation that was not
  // measured costs as others do on its bytes, or as a product does on its flops; notes() names it.
  double operation_ns(const TapeNode& node, const std::vector<TensorType>& in, bool backward) const;
  // Of the optimizer: "adamw" and "squares" by elements, "copy" by bytes.
  double pass_ns(std::string_view pass, double amount) const;
  struct Transfer {
    double ns = 0, cores = 0;  // a rank
  };
  // `bytes`: of one rank's piece. Other numbers of ranks than measured: by what a rank sends.
  Transfer collective(std::string_view kind, int ranks, double bytes) const;

  const std::set<std::string>& notes() const { return notes_; }

 private:
  double row_ns(const MeasuredOperations& table,
                std::string_view op,
                bool backward,
                const std::vector<double>& features,
                double work,
                bool product) const;
  double between_tables(std::string_view op,
                        bool backward,
                        const std::vector<double>& features,
                        double work,
                        bool product) const;

  const MeasuredMachine& machine_;
  int ranks_, threads_;
  // Measured with at most, and at least, as many threads; the same where there is no other.
  const MeasuredOperations *fewer_ = nullptr, *more_ = nullptr;
  mutable std::set<std::string> notes_;
};

}  // namespace vitrine

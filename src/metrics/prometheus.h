// Prometheus' text format (version 0.0.4), for scraping.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace vitrine {

class PrometheusText {
 public:
  using Labels = std::vector<std::pair<std::string, std::string>>;

  // One sample; all of one name should have the same type and help. NaN is left out: the value is
  // not known. What a name may not hold becomes "_".
  void gauge(const std::string& name, const std::string& help, const Labels& labels, double value) {
    add(name, help, "gauge", labels, value);
  }
  // Only grows; the name should end in "_total".
  void counter(const std::string& name,
               const std::string& help,
               const Labels& labels,
               double value) {
    add(name, help, "counter", labels, value);
  }
  // Names in order of first use, samples of a name together.
  std::string text() const;

 private:
  struct Family {
    std::string name, header, samples;
  };
  void add(const std::string& name,
           const std::string& help,
           const char* type,
           const Labels& labels,
           double value);

  std::vector<Family> families_;
};

}  // namespace vitrine

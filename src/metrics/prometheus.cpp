// Names, labels and numbers as the format wants them.
#include "metrics/prometheus.h"

#include <cctype>
#include <cmath>

#include "core/format.h"

namespace vitrine {

namespace {

std::string allowed_name(const std::string& name) {
  std::string out;
  for (const char c : name) {
    const bool fits = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
    out += fits ? c : '_';
  }
  if (out.empty() || std::isdigit(static_cast<unsigned char>(out[0])) != 0) out = "_" + out;
  return out;
}

std::string escaped(const std::string& text, bool quotes) {
  std::string out;
  for (const char c : text) {
    if (c == '\\')
      out += "\\\\";
    else if (c == '\n')
      out += "\\n";
    else if (c == '"' && quotes)
      out += "\\\"";
    else
      out += c;
  }
  return out;
}

std::string number(double value) {
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return format("%.17g", value);
}

}  // namespace

void PrometheusText::add(const std::string& name,
                         const std::string& help,
                         const char* type,
                         const Labels& labels,
                         double value) {
  if (std::isnan(value)) return;
  const std::string key = allowed_name(name);
  Family* family = nullptr;
  for (Family& known : families_) {
    if (known.name == key) family = &known;
  }
  if (!family) {
    const std::string header =
        "# HELP " + key + " " + escaped(help, false) + "\n# TYPE " + key + " " + type + "\n";
    family = &families_.emplace_back(Family{key, header, ""});
  }
  std::string line = key;
  for (size_t i = 0; i < labels.size(); ++i) {
    line += (i == 0 ? "{" : ",") + allowed_name(labels[i].first) + "=\"" +
            escaped(labels[i].second, true) + "\"";
  }
  if (!labels.empty()) line += "}";
  family->samples += line + " " + number(value) + "\n";
}

std::string PrometheusText::text() const {
  std::string out;
  for (const Family& family : families_) out += family.header + family.samples;
  return out;
}

}  // namespace vitrine

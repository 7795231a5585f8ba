// A comparison of two runs as text for logs.
#include "report/comparison_text.h"

#include <cmath>

#include "core/format.h"
#include "report/text_lines.h"

namespace vitrine {
namespace {

std::string quantity(double value, bool bytes, bool sign) {
  const char* mark = !sign ? "" : value < 0 ? "-" : "+";
  const double shown = sign ? std::fabs(value) : value;
  return mark + (bytes ? format_bytes(shown) : format_ns(shown));
}

void write_row(const ComparedRow& row, bool bytes, std::string& out) {
  const std::string a = row.in_a ? quantity(row.a, bytes, false) : "-";
  const std::string b = row.in_b ? quantity(row.b, bytes, false) : "-";
  std::string share = bytes ? "" : format("%+.0f %%", 100 * row.share);
  const std::string head = format("  %11s %11s %11s %9s  ",
                                  a.c_str(),
                                  b.c_str(),
                                  quantity(row.difference, bytes, true).c_str(),
                                  share.c_str());
  std::string name = row.name;
  if (row.count_a != row.count_b) name += format(" (%.4g -> %.4g times)", row.count_a, row.count_b);
  append_lines(out, head, name);
}

void write_table(const char* title,
                 const std::vector<ComparedRow>& rows,
                 size_t most,
                 bool bytes,
                 std::string& out) {
  size_t found = 0;
  for (const ComparedRow& row : rows) {
    if (row.a == 0 && row.b == 0) continue;
    if (found == 0) {
      out += format(
          "\n%s\n  %11s %11s %11s %9s\n", title, "a", "b", "b - a", bytes ? "" : "of change");
    }
    if (found++ < most) write_row(row, bytes, out);
  }
  if (found > most) out += format("  ... and %zu more\n", found - most);
}

std::string ranks_of(const std::string& name, size_t ranks) {
  return name + format(" (%zu rank%s)", ranks, ranks == 1 ? "" : "s");
}

}  // namespace

std::string comparison_text(const Comparison& comparison, size_t rows) {
  std::string out;
  append_lines(out, "", comparison.summary);
  append_lines(out, "a: ", ranks_of(comparison.name_a, comparison.ranks_a));
  append_lines(out, "b: ", ranks_of(comparison.name_b, comparison.ranks_b));
  for (const std::string& note : comparison.notes) append_lines(out, "note: ", note);
  if (!comparison.comparable) {
    write_table("memory, fullest rank", comparison.memory, rows, true, out);
    return out;
  }
  const char* per = comparison.per_step ? "a step and rank" : "the recording, a rank";
  out += format("\ntimes are of %s\n", per);
  write_table("whole", {comparison.step}, 1, false, out);
  write_table("parts", comparison.parts, rows, false, out);
  write_table("compute by phase", comparison.phases, rows, false, out);
  write_table("idle by cause", comparison.idle, rows, false, out);
  write_table("host", comparison.host, rows, false, out);
  write_table("operations, device time", comparison.operations, rows, false, out);
  write_table("operations, host time of their own", comparison.host_operations, rows, false, out);
  write_table("kernels, summed", comparison.kernels, rows, false, out);
  write_table("collectives, summed", comparison.collectives, rows, false, out);
  write_table("memory, fullest rank", comparison.memory, rows, true, out);
  return out;
}

}  // namespace vitrine

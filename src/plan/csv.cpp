// CSV files (RFC 4180).
#include "core/error.h"
#include "core/format.h"
#include "core/mapped_file.h"
#include "plan/measurements.h"

namespace vitrine {

const std::string& CsvTable::cell(size_t row, const std::string& column) const {
  static const std::string kEmpty;
  for (size_t c = 0; c < columns.size(); ++c) {
    if (columns[c] == column) return rows[row][c];
  }
  return kEmpty;
}

CsvTable read_csv(const std::string& path) {
  const MappedFile file(path);
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()),
                              file.bytes().size());
  CsvTable table;
  std::vector<std::string> cells(1);
  bool quoted = false, any = false;
  int line = 1, begun = 1;
  const auto end_row = [&] {
    if (!any) return;
    if (table.columns.empty()) {
      table.columns = std::move(cells);
    } else {
      if (cells.size() != table.columns.size()) {
        throw ConfigError(
            format("%s:%d: the heading has %zu columns, this row %zu: quote cells "
                   "that contain commas",
                   path.c_str(),
                   begun,
                   table.columns.size(),
                   cells.size()));
      }
      table.rows.push_back(std::move(cells));
      table.line.push_back(begun);
    }
    cells.assign(1, "");
    any = false;
  };
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\n') ++line;
    if (quoted) {
      if (c != '"') {
        cells.back() += c;
      } else if (i + 1 < text.size() && text[i + 1] == '"') {
        cells.back() += '"';
        ++i;
      } else {
        quoted = false;
      }
      continue;
    }
    if (c == '"') {
      quoted = any = true;
    } else if (c == ',') {
      cells.emplace_back();
      any = true;
    } else if (c == '\n') {
      end_row();
      begun = line;
    } else if (c != '\r') {
      cells.back() += c;
      any = true;
    }
  }
  if (quoted) {
    throw ConfigError(format(
        "%s:%d: a quoted cell is not closed before the end of the file", path.c_str(), begun));
  }
  end_row();
  if (table.columns.empty()) throw ConfigError(path + ": empty; expected a heading and rows");
  return table;
}

}  // namespace vitrine

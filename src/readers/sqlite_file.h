// A SQLite file of someone else's, opened read-only and not trusted.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

struct sqlite3;
struct sqlite3_stmt;

namespace vitrine {

// A row while it is at hand.
class SqliteRow {
 public:
  explicit SqliteRow(sqlite3_stmt* statement) : statement_(statement) {}
  bool null(int column) const;
  int64_t integer(int column) const;  // 0 for NULL
  std::string text(int column) const;

 private:
  sqlite3_stmt* statement_;
};

// Nothing is written, no journal is replayed, and views, triggers and virtual tables of the file
// are left alone: only plain tables are read. A file whose pages loop is stopped.
class SqliteFile {
 public:
  // Throws IoError that names the file: missing, empty, no SQLite database, damaged, compressed.
  explicit SqliteFile(const std::string& path);
  ~SqliteFile();
  SqliteFile(const SqliteFile&) = delete;
  SqliteFile& operator=(const SqliteFile&) = delete;

  bool has(const std::string& table) const { return tables_.contains(table); }
  bool has(const std::string& table, const std::string& column) const;
  // Visits the given columns of every row in the table's own order; columns that the table does not
  // have are NULL, a table that is not there has no rows. Throws IoError where the file is damaged.
  void each(const std::string& table,
            const std::vector<std::string>& columns,
            const std::function<void(const SqliteRow&)>& visit);

 private:
  void query(const std::string& sql, const std::function<void(const SqliteRow&)>& visit);
  [[noreturn]] void fail(const std::string& doing) const;

  std::string path_;
  sqlite3* database_ = nullptr;
  int64_t steps_left_ = 0;
  std::map<std::string, std::set<std::string>> tables_;  // and their columns
};

}  // namespace vitrine

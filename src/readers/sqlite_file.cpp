// SQLite with everything off that a stranger's file could use.
#include "readers/sqlite_file.h"

#include <sqlite3.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "core/error.h"
#include "core/format.h"

namespace vitrine {

namespace {

constexpr int kStepsBetweenChecks = 10000;

// "file:" wants its own characters escaped.
std::string uri_of(const std::string& path) {
  std::string uri = "file:";
  for (const char c : std::filesystem::absolute(path).string()) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '/' || c == '.' ||
                       c == '-' || c == '_';
    uri += plain ? std::string(1, c) : format("%%%02x", static_cast<unsigned char>(c));
  }
  return uri + "?mode=ro&immutable=1";
}

std::string quoted(const std::string& name) {
  std::string out = "\"";
  for (const char c : name) {
    out += c;
    if (c == '"') out += c;
  }
  return out + "\"";
}

void check_magic(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) throw IoError(path + " is a folder, not a file");
  std::ifstream file(path, std::ios::binary);
  if (!file) throw IoError("cannot read " + path + ": " + std::strerror(errno));
  char start[16] = {};
  file.read(start, sizeof(start));
  if (file.gcount() == 0) throw IoError(path + " is empty");
  if (start[0] == '\x1f' && start[1] == '\x8b') {
    throw IoError(path + " is compressed: SQLite files are read in place, so gunzip it first");
  }
  if (std::memcmp(start, "SQLite format 3", 16) != 0) {
    throw IoError(path + " is no SQLite database; make one with nsys export --type sqlite");
  }
}

}  // namespace

bool SqliteRow::null(int column) const {
  return sqlite3_column_type(statement_, column) == SQLITE_NULL;
}
int64_t SqliteRow::integer(int column) const { return sqlite3_column_int64(statement_, column); }
std::string SqliteRow::text(int column) const {
  const unsigned char* text = sqlite3_column_text(statement_, column);
  const int size = sqlite3_column_bytes(statement_, column);
  return text == nullptr
             ? std::string()
             : std::string(reinterpret_cast<const char*>(text), static_cast<size_t>(size));
}

SqliteFile::SqliteFile(const std::string& path) : path_(path) {
  check_magic(path);
  // A sound file can't ask for more work than its bytes hold rows.
  steps_left_ = static_cast<int64_t>(std::filesystem::file_size(path)) * 16 + 50'000'000;
  const int code = sqlite3_open_v2(
      uri_of(path).c_str(), &database_, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, nullptr);
  try {
    if (code != SQLITE_OK) fail("opening it");
    sqlite3_db_config(database_, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
    sqlite3_db_config(database_, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
    sqlite3_db_config(database_, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, nullptr);
    sqlite3_db_config(database_, SQLITE_DBCONFIG_ENABLE_VIEW, 0, nullptr);
    sqlite3_limit(database_, SQLITE_LIMIT_LENGTH, 64 << 20);
    sqlite3_progress_handler(
        database_,
        kStepsBetweenChecks,
        [](void* left) {
          return (*static_cast<int64_t*>(left) -= kStepsBetweenChecks) < 0 ? 1 : 0;
        },
        &steps_left_);
    query("PRAGMA cell_size_check=ON", [](const SqliteRow&) {});
    query("SELECT name FROM sqlite_master WHERE type='table' AND sql NOT LIKE 'CREATE VIRTUAL%'",
          [&](const SqliteRow& row) { tables_[row.text(0)]; });
    for (auto& table : tables_) {
      query("PRAGMA table_info(" + quoted(table.first) + ")",
            [&](const SqliteRow& row) { table.second.insert(row.text(1)); });
    }
  } catch (...) {
    sqlite3_close(database_);
    throw;
  }
}

SqliteFile::~SqliteFile() { sqlite3_close(database_); }

bool SqliteFile::has(const std::string& table, const std::string& column) const {
  const auto found = tables_.find(table);
  return found != tables_.end() && found->second.contains(column);
}

void SqliteFile::each(const std::string& table,
                      const std::vector<std::string>& columns,
                      const std::function<void(const SqliteRow&)>& visit) {
  if (!has(table)) return;
  std::vector<std::string> parts;
  for (const std::string& column : columns) {
    parts.push_back(has(table, column) ? quoted(column) : "NULL");
  }
  query("SELECT " + join(parts, ",") + " FROM main." + quoted(table), visit);
}

void SqliteFile::query(const std::string& sql, const std::function<void(const SqliteRow&)>& visit) {
  sqlite3_stmt* statement = nullptr;
  if (sqlite3_prepare_v2(database_, sql.c_str(), -1, &statement, nullptr) != SQLITE_OK) {
    sqlite3_finalize(statement);
    fail("reading it");
  }
  const SqliteRow row(statement);
  int code = SQLITE_ROW;
  try {
    while ((code = sqlite3_step(statement)) == SQLITE_ROW) visit(row);
  } catch (...) {
    sqlite3_finalize(statement);
    throw;
  }
  if (code != SQLITE_DONE) {
    try {
      fail("reading it");
    } catch (...) {
      sqlite3_finalize(statement);
      throw;
    }
  }
  sqlite3_finalize(statement);
}

void SqliteFile::fail(const std::string& doing) const {
  const int code = database_ == nullptr ? SQLITE_NOMEM : sqlite3_errcode(database_);
  const std::string reason = code == SQLITE_INTERRUPT ? "its pages refer to each other in circles"
                             : database_ == nullptr   ? "out of memory"
                                                      : sqlite3_errmsg(database_);
  throw IoError(path_ + " is damaged, cut short or no database of Nsight Systems (" + doing + ": " +
                reason + "); export it again with nsys export --type sqlite");
}

}  // namespace vitrine

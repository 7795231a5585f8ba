// The table of choices and its file: a header line, then a line a shape.
#include "ops/gpu/gemm_choices.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>

#include "ops/gpu/cublaslt.h"

namespace vitrine::gpu {
namespace {

namespace fs = std::filesystem;

struct Table {
  std::map<GemmKey, GemmChoice> choices;
  bool changed = false;
};
std::mutex mutex;
std::map<std::string, Table>& tables() {
  static auto* all = new std::map<std::string, Table>;
  return *all;
}

// Algorithms are opaque bytes that hold for one library version on one model of GPU.
std::string header(const std::string& gpu) {
  return "vitrine gemm choices 4, cublasLt " + std::to_string(cublasLtGetVersion()) + ", " + gpu;
}

std::string file_name(std::string gpu) {
  for (char& c : gpu) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (!plain) c = '-';
  }
  return "gemm-" + gpu + "-" + std::to_string(cublasLtGetVersion()) + ".txt";
}

// "" when choices are kept nowhere.
fs::path place(const std::string& gpu) {
  if (const char* named = std::getenv("VITRINE_GEMM_CACHE")) return named;
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache && *cache) {
    return fs::path(cache) / "vitrine" / file_name(gpu);
  }
  const char* home = std::getenv("HOME");
  return home && *home ? fs::path(home) / ".cache" / "vitrine" / file_name(gpu) : fs::path();
}

// The key, the own variant (0 0 for none), the library's words.
bool parse(const std::string& line, GemmKey& key, GemmChoice& choice) {
  std::istringstream in(line);
  for (int64_t& value : key) in >> value;
  in >> choice.own.tile_columns >> choice.own.split;
  in >> std::hex;
  for (uint64_t& word : choice.library.data) in >> word;
  return static_cast<bool>(in);
}

// What the file has and the table has not. Lines that are cut short end the reading.
void read(const std::string& gpu, Table& table) {
  std::ifstream in(place(gpu));
  std::string line;
  if (!std::getline(in, line) || line != header(gpu)) return;
  GemmKey key{};
  GemmChoice choice;
  while (std::getline(in, line) && parse(line, key, choice)) table.choices.emplace(key, choice);
}

// Written beside and renamed, so that another process never sees half a file.
void write(const std::string& gpu, Table& table) {
  const fs::path path = place(gpu);
  if (path.empty()) return;
  read(gpu, table);
  std::error_code ignored;
  if (path.has_parent_path()) fs::create_directories(path.parent_path(), ignored);
  const fs::path beside = path.string() + "." + std::to_string(getpid());
  {
    std::ofstream out(beside);
    out << header(gpu) << '\n';
    for (const auto& [key, choice] : table.choices) {
      out << std::dec;
      for (const int64_t value : key) out << value << ' ';
      out << choice.own.tile_columns << ' ' << choice.own.split << ' ' << std::hex;
      for (const uint64_t word : choice.library.data) out << word << ' ';
      out << '\n';
    }
    if (!out.flush()) {
      fs::remove(beside, ignored);
      return;
    }
  }
  fs::rename(beside, path, ignored);
  if (ignored) fs::remove(beside, ignored);
  table.changed = false;
}

Table& table_of(const std::string& gpu) {
  const auto it = tables().find(gpu);
  if (it != tables().end()) return it->second;
  static const bool at_exit = std::atexit(save_gemm_choices) == 0;
  static_cast<void>(at_exit);
  Table& table = tables()[gpu];
  read(gpu, table);
  return table;
}

}  // namespace

std::optional<GemmChoice> find_gemm_choice(const std::string& gpu, const GemmKey& key) {
  const std::lock_guard lock(mutex);
  const Table& table = table_of(gpu);
  const auto it = table.choices.find(key);
  if (it == table.choices.end()) return std::nullopt;
  return it->second;
}

GemmChoice note_gemm_choice(const std::string& gpu, const GemmKey& key, const GemmChoice& choice) {
  const std::lock_guard lock(mutex);
  Table& table = table_of(gpu);
  const auto [it, added] = table.choices.emplace(key, choice);
  table.changed = table.changed || added;
  return it->second;
}

void forget_gemm_choice(const std::string& gpu, const GemmKey& key) {
  const std::lock_guard lock(mutex);
  table_of(gpu).choices.erase(key);
}

void save_gemm_choices() {
  const std::lock_guard lock(mutex);
  for (auto& [gpu, table] : tables()) {
    if (table.changed) write(gpu, table);
  }
}

}  // namespace vitrine::gpu

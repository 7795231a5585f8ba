// The order of writes, syncs and renames that makes a save atomic.
#include "checkpoint/checkpoint_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "core/error.h"
#include "core/format.h"
#include "core/log.h"
#include "core/shape.h"

namespace vitrine {

namespace fs = std::filesystem;

namespace {

constexpr char kPrefix[] = "step-";

// -1 when the name is not of a committed checkpoint.
int64_t step_of(const std::string& name) {
  if (!name.starts_with(kPrefix)) return -1;
  int64_t step = -1;
  const char* end = name.data() + name.size();
  const auto parsed = std::from_chars(name.data() + sizeof(kPrefix) - 1, end, step);
  return parsed.ec == std::errc() && parsed.ptr == end && step >= 0 ? step : -1;
}

void make_folder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) throw IoError("cannot create folder " + path + ": " + error.message());
}

// A half-deleted checkpoint must not look like one: out of sight first, then away.
void remove_checkpoint(const std::string& folder, const std::string& name) {
  const std::string hidden = folder + "/." + name + ".deleted.tmp";
  std::error_code error;
  fs::rename(folder + "/" + name, hidden, error);
  if (!error) fs::remove_all(hidden, error);
  if (error) log_warning("cannot remove the old checkpoint " + name + ": " + error.message());
}

// Swaps in one step, so that there is no moment without a checkpoint of this step.
void move_into_place(const std::string& from, const std::string& to) {
  if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) {
    std::error_code ignored;
    fs::remove_all(from, ignored);
    return;
  }
  if (errno != ENOENT) {  // a file system that cannot exchange
    std::error_code error;
    fs::remove_all(to, error);
    if (error) throw IoError("cannot replace " + to + ": " + error.message());
  }
  if (std::rename(from.c_str(), to.c_str()) != 0) {
    throw IoError("cannot rename " + from + " to " + to + ": " + std::strerror(errno));
  }
}

}  // namespace

std::string checkpoint_step_name(int64_t step) {
  return format("%s%06lld", kPrefix, static_cast<long long>(step));
}

std::vector<std::pair<int64_t, std::string>> list_checkpoints(const std::string& folder) {
  std::vector<std::pair<int64_t, std::string>> out;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const int64_t step = step_of(entry.path().filename());
    if (step >= 0 && fs::exists(entry.path() / "manifest.json"))
      out.emplace_back(step, entry.path());
  }
  std::sort(out.begin(), out.end());
  return out;
}

CheckpointWriter::CheckpointWriter(std::string folder,
                                   int64_t step,
                                   int32_t rank,
                                   int32_t world_size)
    : folder_(std::move(folder)),
      step_name_(checkpoint_step_name(step)),
      step_(step),
      rank_(rank),
      world_size_(world_size) {
  make_folder(temporary_path());
  if (rank_ != 0) return;
  // This step's own folder stays: other ranks may be writing there already; commit() tidies it.
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder_, error)) {
    const std::string name = entry.path().filename();
    const bool folder_of_another = name.starts_with(std::string(".") + kPrefix) &&
                                   name.ends_with(".tmp") && entry.path() != temporary_path();
    if (folder_of_another || name.starts_with("latest.tmp")) {
      fs::remove_all(entry.path(), error);
    }
  }
}

void CheckpointWriter::add(const std::string& name,
                           StateKind kind,
                           const std::vector<int64_t>& global_shape,
                           DType dtype,
                           int64_t begin,
                           int64_t end,
                           const void* data) {
  int64_t elements = 1;
  for (const int64_t dim : global_shape) elements *= dim;
  if (begin < 0 || end < begin || end > elements) {
    throw ShapeError("checkpoint: \"" + name + "\": elements [" + std::to_string(begin) + ", " +
                     std::to_string(end) + ") lie outside a tensor of " + std::to_string(elements));
  }
  if (begin == end) return;
  const bool whole = begin == 0 && end == elements;
  std::string key = name + ":" + state_kind_name(kind);
  if (!whole)
    key += format("[%lld:%lld]", static_cast<long long>(begin), static_cast<long long>(end));
  const auto bytes = static_cast<size_t>(end - begin) * dtype_bytes(dtype);
  writer_.add(key,
              dtype,
              whole ? global_shape : std::vector<int64_t>{end - begin},
              {static_cast<const std::byte*>(data), bytes});
  pieces_.push_back({name, kind, dtype, global_shape, begin, end, 0, 0});
}

RankResult CheckpointWriter::finish_rank() {
  writer_.set_metadata("format", "vitrine");
  writer_.set_metadata("step", std::to_string(step_));
  writer_.set_metadata("rank", std::to_string(rank_));
  RankResult result;
  result.rank = rank_;
  result.file.name = format("rank%05d.safetensors", rank_);
  const auto written = writer_.write(temporary_path() + "/" + result.file.name);
  result.file.bytes = written.bytes;
  result.file.sha256 = written.sha256;
  result.pieces = pieces_;
  for (size_t i = 0; i < pieces_.size(); ++i) result.pieces[i].offset = written.entries[i].offset;
  return result;
}

void CheckpointWriter::commit(const std::vector<RankResult>& results,
                              const Json& extra,
                              int keep_last) {
  Manifest manifest;
  manifest.step = step_;
  manifest.world_size = world_size_;
  manifest.extra = extra;
  std::vector<const RankResult*> by_rank(static_cast<size_t>(world_size_), nullptr);
  for (const auto& result : results) {
    if (result.rank < 0 || result.rank >= world_size_) {
      throw ConfigError("checkpoint of step " + std::to_string(step_) + ": rank " +
                        std::to_string(result.rank) + " is outside the world of " +
                        std::to_string(world_size_));
    }
    by_rank[static_cast<size_t>(result.rank)] = &result;
  }
  for (size_t rank = 0; rank < by_rank.size(); ++rank) {
    if (by_rank[rank] == nullptr) {
      throw ConfigError("checkpoint of step " + std::to_string(step_) + ": rank " +
                        std::to_string(rank) +
                        " has not delivered its part; nothing was committed");
    }
    for (Piece piece : by_rank[rank]->pieces) {
      piece.file = static_cast<int32_t>(rank);
      manifest.pieces.push_back(std::move(piece));
    }
    manifest.files.push_back(by_rank[rank]->file);
  }

  // Files of an earlier, broken save of this step by more ranks.
  for (const auto& entry : fs::directory_iterator(temporary_path())) {
    const std::string name = entry.path().filename();
    const bool ours = std::any_of(manifest.files.begin(),
                                  manifest.files.end(),
                                  [&](const CheckpointFile& file) { return file.name == name; });
    if (!ours) fs::remove_all(entry.path());
  }
  replace_durably(temporary_path() + "/manifest.json", to_text(manifest));
  move_into_place(temporary_path(), final_path());
  sync_folder(folder_);
  replace_durably(folder_ + "/latest", step_name_ + "\n");

  if (keep_last <= 0) return;
  auto kept = list_checkpoints(folder_);
  // A resumed run may save an earlier step than the newest: its own save is never the one to go.
  std::erase_if(kept, [this](const auto& checkpoint) { return checkpoint.first == step_; });
  const auto excess = static_cast<ptrdiff_t>(kept.size()) - (keep_last - 1);
  for (ptrdiff_t i = 0; i < excess; ++i) {
    remove_checkpoint(folder_, fs::path(kept[static_cast<size_t>(i)].second).filename());
  }
}

}  // namespace vitrine

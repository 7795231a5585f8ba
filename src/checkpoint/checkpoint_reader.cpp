// Finding, verifying and reading of checkpoints.
#include "checkpoint/checkpoint_reader.h"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "checkpoint/checkpoint_writer.h"
#include "core/error.h"
#include "core/format.h"
#include "core/sha256.h"

namespace vitrine {

namespace fs = std::filesystem;

namespace {

std::string others(const std::string& broken) {
  std::vector<std::string> names;
  for (const auto& [step, path] : list_checkpoints(fs::path(broken).parent_path())) {
    if (fs::path(path).filename() != fs::path(broken).filename()) {
      names.push_back(fs::path(path).filename());
    }
  }
  if (names.empty()) return "; there is no other checkpoint beside it";
  return "; other checkpoints there: " + join(names, ", ");
}

std::string find_checkpoint(const std::string& path) {
  if (!fs::is_directory(path)) {
    throw IoError("no checkpoint at " + path + ": there is no such folder");
  }
  if (fs::exists(path + "/manifest.json")) return path;
  if (fs::exists(path + "/latest")) {
    std::string name = read_text_file(path + "/latest");
    while (!name.empty() && (name.back() == '\n' || name.back() == ' ')) name.pop_back();
    if (!name.empty() && fs::exists(path + "/" + name + "/manifest.json")) return path + "/" + name;
  }
  const auto all = list_checkpoints(path);
  if (all.empty()) {
    throw IoError("no checkpoint at " + path +
                  ": expected a manifest.json in it, or step-* folders that have one");
  }
  return all.back().second;
}

}  // namespace

CheckpointReader CheckpointReader::open(const std::string& path, Verify verify) {
  std::string found = find_checkpoint(path);
  while (found.size() > 1 && found.back() == '/') found.pop_back();
  const std::string manifest = found + "/manifest.json";
  try {
    CheckpointReader reader(found, manifest_from_text(read_text_file(manifest), manifest));
    reader.verify(verify);
    return reader;
  } catch (const IoError& error) {
    throw IoError(error.what() + others(found));
  }
}

CheckpointReader::CheckpointReader(std::string path, Manifest manifest)
    : path_(std::move(path)), manifest_(std::move(manifest)) {
  for (const auto& file : manifest_.files) {
    const std::string name = path_ + "/" + file.name;
    if (!fs::exists(name)) throw IoError("the checkpoint's file " + name + " is missing");
    const uint64_t bytes = fs::file_size(name);
    if (bytes != file.bytes) {
      throw IoError("the checkpoint's file " + name + " has " + std::to_string(bytes) +
                    " bytes, its manifest says " + std::to_string(file.bytes) +
                    ": it was cut or replaced");
    }
    files_.emplace_back(name);
  }
  for (const auto& piece : manifest_.pieces) {
    StateInfo& state = states_[{piece.name, piece.kind}];
    state.shape = piece.shape;
    state.dtype = piece.dtype;
    state.elements = 1;
    for (const int64_t dim : piece.shape) state.elements *= dim;
    pieces_[{piece.name, piece.kind}].push_back(piece);
  }
  for (auto& [key, pieces] : pieces_) {
    std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
    });
  }
}

void CheckpointReader::verify(Verify how) const {
  if (how != Verify::kHashes) return;
  for (const auto& file : manifest_.files) {
    const std::string name = path_ + "/" + file.name;
    const std::string found = sha256_of_file(name);
    if (found != file.sha256) {
      throw IoError("the checkpoint's file " + name + " is corrupted: its SHA-256 is " + found +
                    ", its manifest says " + file.sha256);
    }
  }
}

const StateInfo& CheckpointReader::info(const std::string& name, StateKind kind) const {
  const auto it = states_.find({name, kind});
  if (it != states_.end()) return it->second;
  std::vector<std::string> names;
  for (const auto& [key, state] : states_) {
    if (key.second == kind) names.push_back(key.first);
  }
  const std::string near = nearest_name(name, names);
  throw IoError("the checkpoint " + path_ + " holds no " + state_kind_name(kind) + " \"" + name +
                "\"" + (near.empty() ? "" : "; did you mean \"" + near + "\"?"));
}

void CheckpointReader::read(const std::string& name,
                            StateKind kind,
                            int64_t begin,
                            int64_t end,
                            DType dtype,
                            void* out) const {
  const StateInfo& state = info(name, kind);
  if (begin < 0 || end < begin || end > state.elements) {
    throw ShapeError("checkpoint: \"" + name + "\": elements [" + std::to_string(begin) + ", " +
                     std::to_string(end) + ") lie outside a tensor of " +
                     std::to_string(state.elements));
  }
  const std::vector<Piece>& pieces = pieces_.at({name, kind});
  auto* destination = static_cast<std::byte*>(out);
  for (int64_t at = begin; at < end;) {
    const auto piece = std::find_if(pieces.begin(), pieces.end(), [at](const Piece& candidate) {
      return candidate.begin <= at && at < candidate.end;
    });
    if (piece == pieces.end()) {
      throw IoError("the checkpoint " + path_ + " has no piece with element " + std::to_string(at) +
                    " of \"" + name + "\" (" + state_kind_name(kind) + ")");
    }
    const int64_t stop = std::min(end, piece->end);
    const auto source = file(piece->file)
                            .subspan(piece->offset + static_cast<uint64_t>(at - piece->begin) *
                                                         dtype_bytes(piece->dtype));
    if (piece->dtype == dtype) {
      std::memcpy(destination, source.data(), static_cast<size_t>(stop - at) * dtype_bytes(dtype));
    } else {
      convert(dtype, destination, piece->dtype, source.data(), stop - at);
    }
    destination += static_cast<size_t>(stop - at) * dtype_bytes(dtype);
    at = stop;
  }
}

}  // namespace vitrine

// The manifest's JSON, grouped by state so that people can read it.
#include "checkpoint/manifest.h"

#include <array>
#include <map>
#include <tuple>

#include "core/error.h"

namespace vitrine {

namespace {

constexpr std::array<const char*, 4> kKinds = {"parameter", "master", "exp_avg", "exp_avg_sq"};

Json file_json(const CheckpointFile& file) {
  return {{"name", file.name}, {"bytes", file.bytes}, {"sha256", file.sha256}};
}

CheckpointFile read_file(const Json& json, const std::string& where) {
  JsonReader reader(json, where);
  CheckpointFile file;
  file.name = reader.text("name", "");
  file.bytes = static_cast<uint64_t>(reader.integer("bytes", -1, 0, INT64_MAX));
  file.sha256 = reader.text("sha256", "");
  reader.finish();
  if (file.name.empty() || file.name.find('/') != std::string::npos || file.name[0] == '.') {
    throw ConfigError(where + ".name: \"" + file.name + "\" is not a plain file name");
  }
  return file;
}

// [{name, kind, dtype, shape, pieces: [[file, offset, begin, end], ...]}, ...]
Json pieces_json(const std::vector<Piece>& pieces) {
  Json states = Json::array();
  std::map<std::pair<std::string, StateKind>, size_t> places;
  for (const Piece& piece : pieces) {
    const auto [it, added] = places.try_emplace({piece.name, piece.kind}, states.size());
    if (added) {
      states.push_back({{"name", piece.name},
                        {"kind", state_kind_name(piece.kind)},
                        {"dtype", dtype_name(piece.dtype)},
                        {"shape", piece.shape},
                        {"pieces", Json::array()}});
    }
    Json& state = states[it->second];
    if (state["dtype"] != dtype_name(piece.dtype) || state["shape"] != Json(piece.shape)) {
      throw ConfigError("checkpoint: \"" + piece.name + "\" (" + state_kind_name(piece.kind) +
                        ") has another dtype or shape on another rank; all ranks must agree");
    }
    state["pieces"].push_back({piece.file, piece.offset, piece.begin, piece.end});
  }
  return states;
}

std::vector<Piece> read_pieces(const Json& states, const std::vector<CheckpointFile>& files) {
  std::vector<Piece> pieces;
  size_t index = 0;
  for (const Json& json : states) {
    const std::string where = "states[" + std::to_string(index++) + "]";
    JsonReader reader(json, where);
    Piece state;
    state.name = reader.text("name", "");
    state.kind = state_kind_from_name(reader.text("kind", ""));
    state.dtype = dtype_from_name(reader.text("dtype", ""));
    int64_t elements = 1;
    for (const Json& dim : reader.raw("shape")) {
      state.shape.push_back(dim.get<int64_t>());
      if (state.shape.back() < 0 ||
          __builtin_mul_overflow(elements, state.shape.back(), &elements)) {
        throw ConfigError(where + ".shape: not a shape: " + reader.raw("shape").dump());
      }
    }
    for (const Json& item : reader.raw("pieces")) {
      Piece piece = state;
      std::tie(piece.file, piece.offset, piece.begin, piece.end) =
          item.get<std::tuple<int32_t, uint64_t, int64_t, int64_t>>();
      const bool file_known = piece.file >= 0 && static_cast<size_t>(piece.file) < files.size();
      const bool in_tensor = 0 <= piece.begin && piece.begin <= piece.end && piece.end <= elements;
      const uint64_t size = file_known ? files[static_cast<size_t>(piece.file)].bytes : 0;
      if (!file_known || !in_tensor || piece.bytes() > size ||
          piece.offset > size - piece.bytes()) {
        throw ConfigError(where + " (" + state.name + "): the piece " + item.dump() +
                          " lies outside its tensor or its file");
      }
      pieces.push_back(std::move(piece));
    }
    reader.finish();
  }
  return pieces;
}

}  // namespace

const char* state_kind_name(StateKind kind) { return kKinds[static_cast<size_t>(kind)]; }

StateKind state_kind_from_name(const std::string& name) {
  for (size_t i = 0; i < kKinds.size(); ++i) {
    if (name == kKinds[i]) return static_cast<StateKind>(i);
  }
  throw ConfigError("\"" + name +
                    "\" is no kind of state; known: parameter, master, exp_avg, exp_avg_sq");
}

std::string RankResult::to_text() const {
  return Json{{"rank", rank}, {"file", file_json(file)}, {"states", pieces_json(pieces)}}.dump();
}

RankResult RankResult::from_text(const std::string& text) {
  RankResult out;
  try {
    const Json json = parse_json(text, "a rank's part of the checkpoint");
    JsonReader reader(json, "");
    out.rank = static_cast<int32_t>(reader.integer("rank", -1, 0, INT32_MAX));
    out.file = read_file(reader.raw("file"), "file");
    out.pieces = read_pieces(reader.raw("states"), {out.file});
    reader.finish();
  } catch (const Json::exception& error) {
    throw ConfigError(std::string("a rank's part of the checkpoint: ") + error.what());
  }
  return out;
}

std::string to_text(const Manifest& manifest) {
  Json files = Json::array();
  for (const auto& file : manifest.files) files.push_back(file_json(file));
  const auto lines = [](const Json& list) {
    std::string out = "[";
    for (size_t i = 0; i < list.size(); ++i) out += (i == 0 ? "\n  " : ",\n  ") + list[i].dump();
    return out + (list.empty() ? "]" : "\n ]");
  };
  return "{\n \"format\": \"vitrine-checkpoint\",\n \"version\": " +
         std::to_string(kCheckpointVersion) + ",\n \"step\": " + std::to_string(manifest.step) +
         ",\n \"world_size\": " + std::to_string(manifest.world_size) +
         ",\n \"files\": " + lines(files) +
         ",\n \"states\": " + lines(pieces_json(manifest.pieces)) +
         ",\n \"extra\": " + manifest.extra.dump() + "\n}\n";
}

Manifest manifest_from_text(const std::string& text, const std::string& source) {
  Manifest out;
  try {
    const Json json = parse_json(text, source);
    JsonReader reader(json, "");
    if (reader.text("format", "") != "vitrine-checkpoint") {
      throw ConfigError("\"format\" is not \"vitrine-checkpoint\"");
    }
    const int64_t version = reader.integer("version", -1);
    if (version != kCheckpointVersion) {
      throw ConfigError("it has version " + std::to_string(version) +
                        ", this program reads version " + std::to_string(kCheckpointVersion));
    }
    out.step = reader.integer("step", -1, 0, INT64_MAX);
    out.world_size = static_cast<int32_t>(reader.integer("world_size", 0, 1, INT32_MAX));
    size_t i = 0;
    for (const Json& file : reader.raw("files")) {
      out.files.push_back(read_file(file, "files[" + std::to_string(i++) + "]"));
    }
    out.pieces = read_pieces(reader.raw("states"), out.files);
    out.extra = reader.raw("extra");
    reader.finish();
  } catch (const ConfigError& error) {
    throw IoError(source + " is not a whole manifest: " + error.what());
  } catch (const Json::exception& error) {
    throw IoError(source + " is not a whole manifest: " + error.what());
  }
  return out;
}

}  // namespace vitrine

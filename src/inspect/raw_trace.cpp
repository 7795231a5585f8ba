// Walks the document with simdjson; positions of tokens are kept, nothing is rebuilt.
#include "inspect/raw_trace.h"

#include <simdjson.h>

#include <algorithm>

#include "core/error.h"
#include "core/format.h"
#include "readers/decimal.h"
#include "readers/zipped_text.h"

namespace vitrine {

namespace {

using simdjson::ondemand::json_type;
using simdjson::ondemand::object;
using simdjson::ondemand::value;

std::string_view token_of(value item) {
  const json_type type = item.type();
  if (type == json_type::object || type == json_type::array) return {};
  std::string_view token = item.raw_json_token();
  while (!token.empty() && static_cast<unsigned char>(token.back()) <= ' ') token.remove_suffix(1);
  return token;
}

void read_args(object args, RawEvent& event) {
  for (auto field : args) {
    const std::string_view key = field.unescaped_key();
    value item = field.value();
    if (key == "correlation") event.correlation = token_of(item);
    if (key == "External id") event.external_id = token_of(item);
    if (key == "wait_on_cuda_event_record_corr_id") event.record_correlation = token_of(item);
  }
}

void read_event(object entry, RawEvent& event) {
  event = {};
  event.text = entry.raw_json();
  entry.reset();
  for (auto field : entry) {
    const std::string_view key = field.unescaped_key();
    value item = field.value();
    if (key == "args") {
      if (item.type() == json_type::object) read_args(item.get_object(), event);
      continue;
    }
    std::string_view* token = key == "ph"     ? &event.phase
                              : key == "cat"  ? &event.category
                              : key == "name" ? &event.name
                              : key == "pid"  ? &event.pid
                              : key == "tid"  ? &event.tid
                              : key == "ts"   ? &event.ts
                              : key == "dur"  ? &event.duration
                              : key == "id"   ? &event.id
                                              : nullptr;
    if (token != nullptr) *token = token_of(item);
  }
}

void walk(simdjson::ondemand::array events, const std::function<void(const RawEvent&)>& visit) {
  RawEvent event;
  for (value entry : events) {
    if (entry.type() != json_type::object) continue;
    read_event(entry.get_object(), event);
    visit(event);
  }
}

[[noreturn]] void fail(const std::string& path, const simdjson::simdjson_error& error) {
  throw IoError(path + " can't be passed on event by event: it is no whole Chrome trace (" +
                error.what() +
                "). `vitrine diagnose` reads what is left of a damaged file; to cut or merge, "
                "record or download it again.");
}

}  // namespace

RawTrace::RawTrace(const std::string& path)
    : path_(path), text_(read_zipped_text(path, simdjson::SIMDJSON_PADDING)) {
  simdjson::ondemand::parser parser;
  try {
    simdjson::ondemand::document document =
        parser.iterate(text_.data(), text_.size() - simdjson::SIMDJSON_PADDING, text_.size());
    if (document.type() == json_type::array) return;
    bool found = false;
    for (auto field : document.get_object()) {
      const std::string key(field.unescaped_key().value());
      value item = field.value();
      if (key == "traceEvents") {
        found = true;
        continue;
      }
      if (key == "baseTimeNanoseconds") {
        base_ns_ = first_integer(token_of(item));
        continue;
      }
      const json_type type = item.type();
      std::string_view raw;
      if (type == json_type::object) {
        raw = item.get_object().value().raw_json();
      } else if (type == json_type::array) {
        raw = item.get_array().value().raw_json();
      } else {
        raw = token_of(item);
      }
      header_.emplace_back(key, std::string(raw));
    }
    if (!found) throw IoError(path + " is JSON, but no Chrome trace: it has no \"traceEvents\"");
  } catch (const simdjson::simdjson_error& error) {
    fail(path, error);
  }
}

void RawTrace::for_each_event(const std::function<void(const RawEvent&)>& visit) const {
  simdjson::ondemand::parser parser;
  try {
    simdjson::ondemand::document document =
        parser.iterate(text_.data(), text_.size() - simdjson::SIMDJSON_PADDING, text_.size());
    if (document.type() == json_type::array) return walk(document.get_array(), visit);
    for (auto field : document.get_object()) {
      const std::string_view key = field.unescaped_key();
      if (key != "traceEvents") continue;
      walk(field.value().get_array(), visit);
    }
  } catch (const simdjson::simdjson_error& error) {
    fail(path_, error);
  }
}

std::string with_tokens(const RawEvent& event,
                        std::vector<std::pair<std::string_view, std::string>> replacements) {
  std::erase_if(replacements, [](const auto& one) { return one.first.empty(); });
  std::sort(replacements.begin(), replacements.end(), [](const auto& a, const auto& b) {
    return a.first.data() < b.first.data();
  });
  std::string out;
  out.reserve(event.text.size() + 32);
  const char* at = event.text.data();
  for (const auto& [token, text] : replacements) {
    out.append(at, token.data());
    out += text;
    at = token.data() + token.size();
  }
  out.append(at, event.text.data() + event.text.size());
  return out;
}

bool event_time(const RawEvent& event, int64_t& start_ns, int64_t& duration_ns) {
  duration_ns = 0;
  if (!microseconds_to_ns(event.ts, start_ns)) return false;
  return event.duration.empty() || microseconds_to_ns(event.duration, duration_ns);
}

}  // namespace vitrine

// What the two sides of the store agree on.
#pragma once

#include <charconv>
#include <string>
#include <vector>

#include "comm/tcp_store.h"
#include "core/error.h"

namespace vitrine {

// A connection begins with ["hello", kStoreGreeting, rank, ranks, "control" or "plain"], answered
// by ["ok"] or ["error", why]. Requests: ["set", key, value], ["get", key], ["add", key, delta],
// ["table"]; each is answered by ["ok", ...], "get" when the key is there. On control connections
// the rank reports ["progress", step, sequence, what], ["waited", ranks], ["aborted", why],
// ["leaving"]; the store tells the others ["lost", rank] when a rank aborts or its connection
// breaks.
constexpr const char* kStoreGreeting = "vitrine-store-1";

constexpr size_t kStatusFields = 10;

inline int64_t parse_integer(const std::string& text) {
  int64_t value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size() || text.empty()) {
    throw CommError("the store's protocol: expected an integer, got '" + text + "'");
  }
  return value;
}

inline void append_status(std::vector<std::string>& fields, const RankStatus& status) {
  const auto number = [](auto n) { return std::to_string(static_cast<int64_t>(n)); };
  fields.insert(fields.end(),
                {number(status.state),
                 number(status.gone_order),
                 number(status.silent_ms),
                 number(status.step),
                 number(status.sequence),
                 status.what,
                 status.waited_for,
                 number(status.waited_order),
                 status.aborted,
                 number(status.aborted_order)});
}

// The status whose first field is fields[at].
inline RankStatus status_at(const std::vector<std::string>& fields, size_t at) {
  RankStatus status;
  status.state = static_cast<RankStatus::State>(parse_integer(fields.at(at)));
  status.gone_order = parse_integer(fields.at(at + 1));
  status.silent_ms = parse_integer(fields.at(at + 2));
  status.step = parse_integer(fields.at(at + 3));
  status.sequence = parse_integer(fields.at(at + 4));
  status.what = fields.at(at + 5);
  status.waited_for = fields.at(at + 6);
  status.waited_order = parse_integer(fields.at(at + 7));
  status.aborted = fields.at(at + 8);
  status.aborted_order = parse_integer(fields.at(at + 9));
  return status;
}

}  // namespace vitrine

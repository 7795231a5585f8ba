// Finds the prefixes that NCCL gives its lines by walking back from the words "NCCL INFO".
#include "readers/nccl_line.h"

#include <cctype>
#include <charconv>

namespace vitrine {

namespace {

bool digit(char c) { return c >= '0' && c <= '9'; }
bool host_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '.' || c == '_';
}

// Walks back over digits that end at `end`; returns their begin, or npos when there are none.
size_t digits_before(std::string_view line, size_t end) {
  size_t begin = end;
  while (begin > 0 && digit(line[begin - 1])) --begin;
  return begin == end ? std::string_view::npos : begin;
}

// `end` is where " NCCL INFO" begins. Fills the prefix when it is whole.
void parse_prefix(std::string_view line, size_t end, NcclMessage& message) {
  message.prefix_begin = end;
  constexpr size_t kNone = std::string_view::npos;
  // Warnings name their place in the source first: "[0] transport/net.cc:123 NCCL WARN".
  if (end > 0 && line[end - 1] != ']') {
    const size_t blank = line.rfind(' ', end - 1);
    if (blank == kNone || blank == 0 || line[blank - 1] != ']') return;
    end = blank;
  }
  if (end == 0 || line[end - 1] != ']') return;
  const size_t device = digits_before(line, end - 1);
  if (device == kNone || device < 2 || line[device - 1] != '[' || line[device - 2] != ' ') return;
  const size_t tid_end = device - 2;
  const size_t tid = digits_before(line, tid_end);
  if (tid == kNone || tid < 1 || line[tid - 1] != ':') return;
  const size_t pid = digits_before(line, tid - 1);
  if (pid == kNone || pid < 2 || line[pid - 1] != ':') return;
  size_t host = pid - 1;
  while (host > 0 && host_character(line[host - 1])) --host;
  if (host == pid - 1) return;
  message.host = line.substr(host, pid - 1 - host);
  message.process = line.substr(host, tid - 1 - host);
  message.thread = line.substr(host, tid_end - host);
  message.prefix_begin = host;
}

}  // namespace

std::vector<NcclMessage> split_nccl_line(std::string_view line) {
  std::vector<NcclMessage> messages;
  constexpr std::string_view kWord = " NCCL ";
  for (size_t at = line.find(kWord); at != std::string_view::npos; at = line.find(kWord, at + 1)) {
    const std::string_view rest = line.substr(at + kWord.size());
    const bool info = rest.substr(0, 4) == "INFO", warn = rest.substr(0, 4) == "WARN";
    if (!info && !warn) continue;
    NcclMessage message;
    message.warn = warn;
    parse_prefix(line, at, message);
    message.text = rest.substr(4);
    while (!message.text.empty() && message.text.front() == ' ') message.text.remove_prefix(1);
    if (!messages.empty()) {
      NcclMessage& before = messages.back();
      const size_t begin = static_cast<size_t>(before.text.data() - line.data());
      before.text = line.substr(
          begin, message.prefix_begin > begin ? message.prefix_begin - begin : size_t{0});
    }
    messages.push_back(std::move(message));
  }
  for (NcclMessage& message : messages) {
    while (!message.text.empty() && message.text.back() == ' ') message.text.remove_suffix(1);
  }
  return messages;
}

std::string_view value_after(std::string_view text, std::string_view key) {
  for (size_t at = text.find(key); at != std::string_view::npos; at = text.find(key, at + 1)) {
    if (at > 0 && text[at - 1] != ' ') continue;
    const std::string_view rest = text.substr(at + key.size());
    return rest.substr(0, rest.find(' '));
  }
  return {};
}

int32_t number_after(std::string_view text, std::string_view key, int32_t missing) {
  const std::string_view value = value_after(text, key);
  int32_t number = missing;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  return error == std::errc() ? number : missing;
}

}  // namespace vitrine

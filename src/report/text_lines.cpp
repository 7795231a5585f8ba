// Wrapping of text for logs.
#include "report/text_lines.h"

namespace vitrine {
namespace {

std::string ascii(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    // Of a character of several bytes one mark is enough.
    if ((byte & 0xC0) == 0x80) continue;
    out += byte >= 0x80 ? '?' : byte < 0x20 || byte == 0x7F ? ' ' : c;
  }
  return out;
}

}  // namespace

void append_lines(std::string& out, const std::string& head, const std::string& text) {
  const std::string words = ascii(text), indent(head.size(), ' ');
  std::string line = ascii(head);
  bool empty = true;
  const auto flush = [&] {
    while (!line.empty() && line.back() == ' ') line.pop_back();
    out += line + "\n";
    line = indent;
    empty = true;
  };
  for (size_t at = 0; at < words.size();) {
    at = words.find_first_not_of(' ', at);
    if (at == std::string::npos) break;
    const size_t end = std::min(words.find(' ', at), words.size());
    std::string word = words.substr(at, end - at);
    at = end;
    if (!empty && line.size() + 1 + word.size() > kTextWidth) flush();
    while (line.size() + word.size() > kTextWidth && line.size() < kTextWidth) {
      const size_t room = kTextWidth - line.size();
      line += word.substr(0, room);
      word.erase(0, room);
      flush();
    }
    line += (empty ? "" : " ") + word;
    empty = false;
  }
  flush();
}

}  // namespace vitrine

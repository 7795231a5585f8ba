// Text for logs: plain ASCII, wrapped lines.
#pragma once

#include <string>

namespace vitrine {

constexpr size_t kTextWidth = 100;

// Appends `text` as lines of at most kTextWidth: the first begins with `head`, the others with as
// many spaces. Words longer than a line are cut. Bytes outside ASCII become '?', line ends become
// spaces.
void append_lines(std::string& out, const std::string& head, const std::string& text);

}  // namespace vitrine

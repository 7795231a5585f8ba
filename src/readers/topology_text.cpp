// The table of links: found in the text by its header and rows, then read cell by cell.
#include "readers/topology_text.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>

#include "core/error.h"
#include "core/format.h"
#include "readers/line_reader.h"

namespace vitrine {

namespace {

constexpr size_t kMostDevices = 1024;

// Without terminal escapes ("\e[4mGPU0\e[0m").
std::string without_escapes(std::string_view line) {
  std::string out;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '\x1b') {
      out += line[i];
      continue;
    }
    if (i + 1 < line.size() && line[i + 1] == '[') {
      i += 2;
      while (i < line.size() && !std::isalpha(static_cast<unsigned char>(line[i]))) ++i;
    }
  }
  return out;
}

std::vector<std::string> words_of(std::string_view line) {
  std::vector<std::string> words;
  std::string word;
  for (const char c : line) {
    if (c != ' ' && c != '\t') {
      word += c;
    } else if (!word.empty()) {
      words.push_back(std::move(word));
      word.clear();
    }
  }
  if (!word.empty()) words.push_back(std::move(word));
  return words;
}

std::vector<std::string> tab_cells(std::string_view line) {
  std::vector<std::string> cells(1);
  for (const char c : line) {
    if (c == '\t') {
      cells.emplace_back();
    } else if (c != ' ') {
      cells.back() += c;
    }
  }
  return cells;
}

bool all_digits(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c); });
}

bool is_gpu(std::string_view word) {
  return word.substr(0, 3) == "GPU" && all_digits(word.substr(3));
}

// amd-smi names cards by their PCI address: "0000:0c:00.0".
bool is_pci_address(std::string_view word) {
  if (word.size() != 12 || word[4] != ':' || word[7] != ':' || word[10] != '.') return false;
  return std::all_of(word.begin(), word.end(), [](unsigned char c) {
    return std::isxdigit(c) || c == ':' || c == '.';
  });
}

std::optional<Topology::Link> link_of(std::string_view cell) {
  static const std::map<std::string_view, LinkKind> kinds = {{"X", LinkKind::kSelf},
                                                             {"SELF", LinkKind::kSelf},
                                                             {"SYS", LinkKind::kSystem},
                                                             {"SOC", LinkKind::kSystem},
                                                             {"NODE", LinkKind::kNode},
                                                             {"PHB", LinkKind::kHostBridge},
                                                             {"PCIE", LinkKind::kHostBridge},
                                                             {"PXB", LinkKind::kSwitches},
                                                             {"PIX", LinkKind::kSwitch},
                                                             {"XGMI", LinkKind::kNvlink}};
  const auto found = kinds.find(cell);
  if (found != kinds.end()) return Topology::Link{found->second, 0};
  constexpr int kMostLinks = 64;  // of one card to another; 18 are the most there are
  if (cell.substr(0, 2) == "NV" && cell.size() <= 4 && all_digits(cell.substr(2))) {
    const int links = std::stoi(std::string(cell.substr(2)));
    if (links >= 1 && links <= kMostLinks) return Topology::Link{LinkKind::kNvlink, links};
  }
  return std::nullopt;
}

struct Header {
  std::vector<std::string> devices;
  size_t gpus = 0;
  enum class Extra { kCpu, kNuma, kOther };
  std::vector<Extra> extras;  // columns behind the devices
};

std::optional<Header> header_of(const std::vector<std::string>& words) {
  if (words.empty() || !(is_gpu(words[0]) || is_pci_address(words[0]))) return std::nullopt;
  if (words.size() > 1 && (link_of(words[1]) || all_digits(words[1]))) return std::nullopt;
  if (words.size() > kMostDevices) return std::nullopt;
  Header header;
  size_t i = 0;
  for (; i < words.size() && words[i] != "CPU" && words[i] != "NUMA" && words[i] != "GPU"; ++i) {
    header.devices.push_back(words[i]);
    if (is_gpu(words[i]) || is_pci_address(words[i])) header.gpus = i + 1;
  }
  for (; i < words.size(); ++i) {
    if (words[i] == "CPU") header.extras.push_back(Header::Extra::kCpu);
    if (words[i] == "NUMA") header.extras.push_back(Header::Extra::kNuma);
    if (words[i] == "GPU") {
      header.extras.push_back(Header::Extra::kOther);  // "GPU NUMA ID"
      while (i + 1 < words.size() && (words[i + 1] == "NUMA" || words[i + 1] == "ID")) ++i;
    }
  }
  return header;
}

// rocm-smi's tables of weights and hops have the same header; only one with links is wanted.
bool is_link_row(const Header& header, const std::vector<std::string>& words) {
  if (words.size() < 2) return false;
  if (std::find(header.devices.begin(), header.devices.end(), words[0]) == header.devices.end()) {
    return false;
  }
  for (size_t i = 1; i < words.size() && i <= header.devices.size(); ++i) {
    if (link_of(words[i])) return true;
  }
  return false;
}

class Table {
 public:
  explicit Table(const Header& header) : header_(header) {
    const size_t size = header.devices.size();
    topology.gpus.assign(header.devices.begin(),
                         header.devices.begin() + static_cast<std::ptrdiff_t>(header.gpus));
    topology.nics.assign(header.devices.begin() + static_cast<std::ptrdiff_t>(header.gpus),
                         header.devices.end());
    topology.links.assign(size, std::vector<Topology::Link>(size));
    for (size_t i = 0; i < size; ++i) topology.links[i][i].kind = LinkKind::kSelf;
    topology.cpu_affinity.assign(header.gpus, "");
    topology.numa_node.assign(header.gpus, -1);
    seen_.assign(size, false);
  }

  bool has_row(const std::string& name) const {
    const size_t row = row_of(name);
    return row < seen_.size() && seen_[row];
  }

  void read_row(const std::string& line, const std::vector<std::string>& words) {
    const size_t row = row_of(words[0]), size = header_.devices.size();
    seen_[row] = true;
    size_t bad = 0;
    for (size_t column = 0; column < size; ++column) {
      if (column + 1 >= words.size()) {
        topology.warnings.push_back(format(
            "the row of %s is cut after %zu of %zu devices", words[0].c_str(), column, size));
        return;
      }
      const std::string& cell = words[column + 1];
      const auto link = link_of(cell);
      if (link && (link->kind == LinkKind::kSelf) != (row == column)) {
        ++odd_;
        if (first_odd_.empty()) {
          first_odd_ = format("\"%s\" in row %s, column %s",
                              cell.c_str(),
                              words[0].c_str(),
                              header_.devices[column].c_str());
        }
      } else if (link) {
        topology.links[row][column] = *link;
        far_pcie_ = far_pcie_ || cell == "PCIE";
      } else if (!(row == column && cell == "0")) {  // rocm-smi's self
        ++bad;
        topology.warnings.push_back(
            format("\"%s\" in row %s, column %s is no kind of link: it is taken as unknown",
                   cell.substr(0, 40).c_str(),
                   words[0].c_str(),
                   header_.devices[column].c_str()));
      }
    }
    if (bad == 0 && row < header_.gpus) read_extras(row, line, words);
  }

  // Only tabs show which of the cells behind the links are blank.
  void read_extras(size_t row, const std::string& line, const std::vector<std::string>& words) {
    const bool tabs = line.find('\t') != std::string::npos;
    const std::vector<std::string> cells = tabs ? tab_cells(line) : words;
    const size_t first = header_.devices.size() + 1;
    for (size_t i = 0; i < header_.extras.size() && first + i < cells.size(); ++i) {
      const std::string& cell = cells[first + i];
      if (header_.extras[i] == Header::Extra::kCpu && cell != "N/A") {
        topology.cpu_affinity[row] = cell;
      }
      if (header_.extras[i] == Header::Extra::kNuma && all_digits(cell) && cell.size() < 6) {
        topology.numa_node[row] = std::stoi(cell);
      }
    }
  }

  void finish() {
    std::vector<std::string> missing;
    for (size_t row = 0; row < seen_.size(); ++row) {
      if (seen_[row]) continue;
      missing.push_back(header_.devices[row]);
      for (size_t i = 0; i < seen_.size(); ++i) {
        if (i != row) topology.links[row][i] = topology.links[i][row];
      }
    }
    if (!missing.empty()) {
      topology.warnings.push_back("the table is cut: no row of " + join(missing, ", ") +
                                  "; their links are taken from the other rows");
    }
    if (odd_ > 0) {
      topology.warnings.push_back(
          format("%zu cells say that a device is another, or linked with itself (the first: %s): "
                 "they are taken as unknown",
                 odd_,
                 first_odd_.c_str()));
    }
    warn_of_one_sided();
    if (far_pcie_) {
      topology.warnings.push_back(
          "PCIE does not say how far two cards are: taken as PHB (through a host bridge)");
    }
  }

  // The two cells of a pair say the same, unless the table is damaged.
  void warn_of_one_sided() {
    size_t count = 0;
    std::string first;
    for (size_t row = 0; row < seen_.size(); ++row) {
      for (size_t column = 0; column < row; ++column) {
        const Topology::Link &a = topology.links[row][column], &b = topology.links[column][row];
        if (a.kind == LinkKind::kUnknown || b.kind == LinkKind::kUnknown) continue;
        if (a.kind == b.kind && a.nvlinks == b.nvlinks) continue;
        if (count++ == 0) first = header_.devices[row] + " and " + header_.devices[column];
      }
    }
    if (count == 0) return;
    topology.warnings.push_back(
        format("%zu pairs of devices have one link in one row and another in the other (the first: "
               "%s): the table may be damaged",
               count,
               first.c_str()));
  }

  void name_nic(const std::string& short_name, const std::string& name) {
    for (size_t i = header_.gpus; i < header_.devices.size(); ++i) {
      if (header_.devices[i] == short_name) topology.nics[i - header_.gpus] = name;
    }
  }

  const Header& header() const { return header_; }
  Topology topology;

 private:
  size_t row_of(const std::string& name) const {
    return static_cast<size_t>(std::find(header_.devices.begin(), header_.devices.end(), name) -
                               header_.devices.begin());
  }
  Header header_;
  std::vector<bool> seen_;
  bool far_pcie_ = false;
  size_t odd_ = 0;
  std::string first_odd_;
};

// A name of two columns leaves open which card is meant.
void refuse_repeated(const std::string& path, const std::vector<std::string>& devices) {
  std::map<std::string, size_t> columns;
  for (size_t i = 0; i < devices.size(); ++i) {
    const auto [it, added] = columns.try_emplace(devices[i], i);
    if (added) continue;
    throw IoError(
        format("%s: columns %zu and %zu of its table of links are both called \"%s\", so "
               "which device is meant is not known; give the output of `nvidia-smi topo "
               "-m` as it is",
               path.c_str(),
               it->second + 1,
               i + 1,
               devices[i].substr(0, 40).c_str()));
  }
}

// Fed line by line.
class Finder {
 public:
  void line(std::string_view raw) {
    const std::string line = without_escapes(raw);
    const std::vector<std::string> words = words_of(line);
    if (words.empty()) return;
    if (auto header = header_of(words)) {
      header_ = std::move(header);
      return;
    }
    if (header_ && is_link_row(*header_, words)) {
      if (!table) {
        table.emplace(*header_);
      } else if (table->header().devices != header_->devices || table->has_row(words[0])) {
        another_ = true;
        return;
      }
      table->read_row(line, words);
    } else if (table && words.size() == 2 && words[0].size() > 1 && words[0].back() == ':') {
      table->name_nic(words[0].substr(0, words[0].size() - 1), words[1]);  // "NIC0: mlx5_0"
    }
  }
  std::optional<Table> table;
  bool another() const { return another_; }

 private:
  std::optional<Header> header_;
  bool another_ = false;
};

}  // namespace

Topology read_topology(const std::string& path) {
  LineReader reader(path);
  Finder finder;
  std::string_view line;
  while (reader.next(line)) finder.line(line);
  if (!finder.table) {
    throw IoError(path +
                  " holds no table of links: expected the output of `nvidia-smi topo -m` (a line "
                  "GPU0 GPU1 ..., then a row for each card with NV#, PIX, PXB, PHB, NODE or SYS)");
  }
  refuse_repeated(path, finder.table->header().devices);
  finder.table->finish();
  Topology topology = std::move(finder.table->topology);
  topology.source = path;
  if (finder.another()) {
    topology.warnings.push_back("the file holds more than one table: the first is read");
  }
  if (!reader.problem().empty()) topology.warnings.push_back(reader.problem());
  return topology;
}

bool looks_like_topology(std::string_view text) {
  Finder finder;
  while (!text.empty() && !finder.table) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    if (line.find("GPU") != std::string_view::npos || line.find(':') != std::string_view::npos) {
      finder.line(line);
    }
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return finder.table.has_value();
}

}  // namespace vitrine

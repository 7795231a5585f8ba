// NCCL's messages, one after the other, into facts.
#include "readers/nccl_log.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "core/format.h"
#include "readers/line_reader.h"
#include "readers/nccl_line.h"

namespace vitrine {

namespace {

constexpr size_t kNone = std::string_view::npos;

bool starts(std::string_view text, std::string_view with) { return text.starts_with(with); }
bool holds(std::string_view text, std::string_view part) { return text.find(part) != kNone; }

// "3[1a000]" -> 3; the brackets hold a device number, or a PCI address in old versions.
bool rank_of(std::string_view text, int32_t& rank) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rank);
  return error == std::errc() && rank >= 0 && end != text.data() + text.size() && *end == '[' &&
         text.back() == ']';
}

enum class Side { kBoth, kSends, kReceives };

struct Reported {
  NcclFacts::Channel channel;
  Side side = Side::kBoth;
};

// "Channel 03/0 : 0[0] -> 1[1] [send] via NET/IB/0/GDRDMA"; false when it is not whole.
bool parse_channel(std::string_view text, Reported& out) {
  text.remove_prefix(std::string_view("Channel ").size());
  NcclFacts::Channel& channel = out.channel;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), channel.number);
  if (error != std::errc()) return false;
  const size_t colon = text.find(" : "), arrow = text.find(" -> "), via = text.find(" via ");
  if (colon == kNone || arrow == kNone || via == kNone || colon > arrow || arrow > via)
    return false;
  std::string_view to = text.substr(arrow + 4, via - arrow - 4);
  if (to.ends_with(" [send]")) out.side = Side::kSends, to.remove_suffix(7);
  if (to.ends_with(" [receive]")) out.side = Side::kReceives, to.remove_suffix(10);
  if (!rank_of(text.substr(colon + 3, arrow - colon - 3), channel.from) || !rank_of(to, channel.to))
    return false;
  std::string_view how = text.substr(via + 5);
  if (const size_t comm = how.find(" comm "); comm != kNone) how = how.substr(0, comm);
  if (how.substr(0, 3) != "P2P" && how.substr(0, 3) != "SHM" && how.substr(0, 3) != "NET" &&
      how.substr(0, 4) != "COLL" && how.substr(0, 4) != "NVLS")
    return false;
  channel.transport = how;
  if (const size_t rdma = channel.transport.find("/GDRDMA"); rdma != std::string::npos) {
    channel.direct_rdma = true;
    channel.transport.erase(rdma, std::string_view("/GDRDMA").size());
  }
  return true;
}

// "RING" and "NVLS_TREE" of today's logs are "Ring" and "NVLSTree".
bool same_letters(std::string_view a, std::string_view b) {
  std::string one = lower(a);
  std::erase(one, '_');
  return one == lower(b);
}

// "AllReduce: 8388608 Bytes -> Algo 1 proto 2 time 123.4" -> with one name for each.
std::string tuning_choice(std::string_view text) {
  const size_t bytes = text.find(" Bytes -> Algo "), proto = text.find(" proto ");
  if (bytes == kNone || proto == kNone || proto < bytes) return "";
  static const char* const algorithms[] = {
      "Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT"};
  static const char* const protocols[] = {"LL", "LL128", "Simple"};
  const auto name = [](std::string_view word, const char* const* names, size_t count) {
    size_t number = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    const bool whole = error == std::errc() && end == word.data() + word.size();
    if (whole && number < count) return std::string(names[number]);
    for (size_t i = 0; i < count; ++i) {
      if (same_letters(word, names[i])) return std::string(names[i]);
    }
    return std::string(word);
  };
  const std::string_view algorithm = value_after(text, "Algo ");
  return std::string(text.substr(0, bytes)) + " Bytes -> Algo " + name(algorithm, algorithms, 7) +
         " proto " + name(value_after(text, "proto "), protocols, 3);
}

class Log {
 public:
  void line(std::string_view line) {
    ++facts.lines;
    if (!holds(line, "NCCL")) return;
    const std::vector<NcclMessage> messages = split_nccl_line(line);
    for (size_t i = 0; i < messages.size(); ++i) {
      ++messages_;
      if (i > 0 || messages[i].host.empty()) ++interleaved_;
      message(messages[i]);
    }
    if (messages.empty()) plain(line);
  }

  NcclFacts finish();
  int64_t messages() const { return messages_; }
  NcclFacts facts;

 private:
  // Of one thread of a process, by the names that NCCL gives it.
  struct Thread {
    int32_t communicator = -1;    // begun last
    std::vector<size_t> waiting;  // reported channels, before their communicator is known
    int32_t channels = 0;
  };

  void plain(std::string_view line);
  void message(const NcclMessage& message);
  void communicator(const NcclMessage& message, std::string_view text);
  void channel(const NcclMessage& message);
  void network(const NcclMessage& message);
  void version(std::string_view text);
  void problem(std::string_view text) { ++problems_[std::string(text.substr(0, 400))]; }
  std::string host_of(const NcclMessage& message) const;
  int32_t communicator_of(const NcclMessage& message) const;
  void settle_channels();
  void settle_hosts();

  std::map<std::string, Thread, std::less<>> threads_;
  std::map<std::string, std::vector<int32_t>, std::less<>> of_process_;
  std::map<std::pair<std::string, std::string>, int32_t> by_address_;  // (process, comm 0x...)
  std::set<int32_t> with_id_;  // communicators whose id is the same on all of their ranks
  std::vector<Reported> reported_;
  std::map<std::string, int64_t> problems_;
  std::set<std::string> tuning_seen_, versions_, networks_, devices_seen_;
  int64_t messages_ = 0, interleaved_ = 0, damaged_ = 0, tuning_left_ = 0;
};

void Log::version(std::string_view text) {
  const std::string version(value_after(text, "version "));
  if (version.empty()) return;
  if (facts.version.empty()) facts.version = version;
  versions_.insert(version);
}

// NCCL's lines without a prefix, and what the shell was told.
void Log::plain(std::string_view line) {
  if (starts(line, "NCCL version ") || starts(line, "RCCL version ")) {
    ++messages_;
    return version(line);
  }
  if (starts(line, "+ ")) line.remove_prefix(2);
  if (starts(line, "export ")) line.remove_prefix(7);
  const size_t equals = line.find('=');
  if (!starts(line, "NCCL_") || equals == kNone) return;
  const std::string_view name = line.substr(0, equals);
  const bool variable = std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
  const std::string_view value = line.substr(equals + 1);
  if (variable && !holds(value, " ")) facts.environment.emplace(name, value);
}

// A prefix amid a line may have other text glued to the host's name.
std::string Log::host_of(const NcclMessage& message) const {
  if (message.prefix_begin == 0) return message.host;
  std::string best;
  for (const std::string& host : facts.hosts) {
    if (host.size() > best.size() && message.host.ends_with(host)) best = host;
  }
  return best.empty() ? message.host : best;
}

void Log::message(const NcclMessage& given) {
  NcclMessage message = given;
  if (!message.host.empty()) {
    const std::string host = host_of(given);
    const size_t glued = message.host.size() - host.size();
    message.process.erase(0, glued);
    message.thread.erase(0, glued);
    message.host = host;
    if (std::find(facts.hosts.begin(), facts.hosts.end(), host) == facts.hosts.end()) {
      facts.hosts.push_back(host);
    }
  }
  const std::string_view text = message.text;
  if (message.warn) return problem(text);
  if (starts(text, "Channel ") && holds(text, " -> ")) return channel(message);
  if (holds(text, " coll channels,")) {
    int32_t channels = 0;
    std::from_chars(text.data(), text.data() + text.size(), channels);
    const int32_t at = communicator_of(message);
    if (at >= 0)
      facts.communicators[static_cast<size_t>(at)].channels = channels;
    else if (!message.thread.empty())
      threads_[message.thread].channels = channels;
    return;
  }
  if (starts(text, "NCCL version ") || starts(text, "RCCL version ")) return version(text);
  if (const size_t set = text.find(" set by environment to "); set != kNone) {
    std::string_view value = text.substr(set + std::string_view(" set by environment to ").size());
    if (value.ends_with('.')) value.remove_suffix(1);
    const size_t name = text.substr(0, set).rfind(' ');
    facts.environment[std::string(
        text.substr(name == kNone ? 0 : name + 1, set - (name == kNone ? 0 : name + 1)))] = value;
    return;
  }
  if (holds(text, "comm 0x")) return communicator(message, text.substr(text.find("comm 0x")));
  if (const std::string choice = tuning_choice(text); !choice.empty()) {
    if (tuning_seen_.contains(choice)) return;
    if (facts.tuning.size() >= kMostTuning) return void(++tuning_left_);
    tuning_seen_.insert(choice);
    return facts.tuning.push_back(choice);
  }
  network(message);
}

void Log::network(const NcclMessage& message) {
  const std::string_view text = message.text;
  if (starts(text, "Using network ")) {
    const std::string name(text.substr(std::string_view("Using network ").size()));
    if (facts.network.empty()) facts.network = name;
    networks_.insert(name);
  } else if (starts(text, "NET/") && holds(text, " : Using [")) {
    // "[0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>", "[0]eth0:10.0.0.1<0>"
    std::string_view rest = text.substr(text.find(" : Using ") + 9);
    rest = rest.substr(0, rest.find(';'));
    for (size_t open = rest.find('['); open != kNone; open = rest.find('[')) {
      rest.remove_prefix(open + 1);
      const size_t close = rest.find(']');
      if (close == kNone) break;
      const bool number = close > 0 && rest[0] >= '0' && rest[0] <= '9';
      rest.remove_prefix(close + 1);
      if (!number) continue;
      std::string device(rest.substr(0, rest.find(' ')));
      if (starts(text, "NET/Socket")) device = device.substr(0, device.find(':'));
      if (!device.empty() && devices_seen_.insert(device).second) {
        facts.network_devices.push_back(device);
      }
    }
  } else if (starts(text, "Failed to initialize") || holds(text, "No device found") ||
             (holds(text, "lugin") && (holds(text, "failed") || holds(text, "Failed")))) {
    problem(text);
  }
}

// "comm 0x.. rank 1 nranks 8 cudaDev 1 busId 70 commId 0x.. - Init START", or, of versions since
// 2.19, "comm 0x.. rank 1 nRanks 8 nNodes 1 localRanks 8 localRank 1".
void Log::communicator(const NcclMessage& message, std::string_view text) {
  if (holds(text, "Destroy COMPLETE") || holds(text, "Abort COMPLETE")) {
    by_address_.erase({message.process, std::string(value_after(text, "comm "))});
    return;
  }
  const int32_t rank = number_after(text, "rank ", -1);
  const int32_t ranks =
      std::max(number_after(text, "nranks ", -1), number_after(text, "nRanks ", -1));
  const bool wanted =
      holds(text, "Init START") || holds(text, "Init COMPLETE") || holds(text, "nNodes ");
  if (!wanted) return;
  if (rank < 0 || ranks <= rank || message.host.empty()) return void(++damaged_);
  const std::string address(value_after(text, "comm "));
  const auto [known, is_new] = by_address_.try_emplace(
      {message.process, address}, static_cast<int32_t>(facts.communicators.size()));
  // An address may serve again, where the log does not say that its communicator was destroyed.
  if (!is_new) {
    const auto& before = facts.communicators[static_cast<size_t>(known->second)];
    if (before.ranks != ranks || before.rank != rank) {
      known->second = static_cast<int32_t>(facts.communicators.size());
    }
  }
  if (static_cast<size_t>(known->second) == facts.communicators.size()) {
    facts.communicators.emplace_back();
    of_process_[message.process].push_back(known->second);
  }
  NcclFacts::Communicator& it = facts.communicators[static_cast<size_t>(known->second)];
  it.rank = rank, it.ranks = ranks, it.host = message.host;
  const std::string_view id = value_after(text, "commId ");
  if (!id.empty()) it.id = id, with_id_.insert(known->second);
  if (it.id.empty()) it.id = address;
  it.nodes = number_after(text, "nNodes ", it.nodes);
  it.local_ranks = number_after(text, "localRanks ", it.local_ranks);
  it.cuda_device = number_after(text, "cudaDev ", it.cuda_device);
  it.nvml_device = number_after(text, "nvmlDev ", it.nvml_device);
  if (const std::string_view bus = value_after(text, "busId "); !bus.empty()) it.bus_id = bus;

  Thread& thread = threads_[message.thread];
  thread.communicator = known->second;
  for (const size_t i : thread.waiting) reported_[i].channel.communicator = known->second;
  thread.waiting.clear();
  if (thread.channels > 0) it.channels = std::exchange(thread.channels, 0);
  // Old versions name the communicator only when it is complete: what follows is another's.
  if (is_new && holds(text, "Init COMPLETE")) thread.communicator = -1;
}

int32_t Log::communicator_of(const NcclMessage& message) const {
  const auto thread = threads_.find(message.thread);
  return thread == threads_.end() ? -1 : thread->second.communicator;
}

void Log::channel(const NcclMessage& message) {
  Reported reported;
  if (!parse_channel(message.text, reported)) return void(++damaged_);
  reported.channel.communicator = communicator_of(message);
  if (!message.thread.empty()) {
    if (reported.channel.communicator < 0) {
      threads_[message.thread].waiting.push_back(reported_.size());
    }
  }
  reported_.push_back(std::move(reported));
}

void Log::settle_channels() {
  // Threads that set up connections later than the communicator: clear where a process has one.
  for (const auto& [name, thread] : threads_) {
    const auto process = of_process_.find(std::string_view(name).substr(0, name.rfind(':')));
    if (process == of_process_.end() || process->second.size() != 1) continue;
    for (const size_t i : thread.waiting) {
      reported_[i].channel.communicator = process->second.front();
    }
  }
  // Both ends report a network connection. Ends meet by the communicator's id, which old versions
  // do not give: there by its size.
  const auto meeting = [&](const NcclFacts::Channel& channel) {
    std::string group = "?";
    if (channel.communicator >= 0) {
      const auto& communicator = facts.communicators[static_cast<size_t>(channel.communicator)];
      group = std::to_string(communicator.ranks);
      if (with_id_.contains(channel.communicator)) group += communicator.id;
    }
    return std::tuple(group, channel.number, channel.from, channel.to);
  };
  std::map<std::tuple<std::string, int32_t, int32_t, int32_t>, int64_t> sends;
  for (const Reported& r : reported_) {
    if (r.side == Side::kSends) ++sends[meeting(r.channel)];
  }
  std::set<std::tuple<int32_t, int32_t, int32_t, int32_t, std::string>> seen;
  for (const Reported& r : reported_) {
    if (r.side == Side::kReceives) {
      const auto sent = sends.find(meeting(r.channel));
      if (sent != sends.end() && sent->second-- > 0) continue;
    }
    const NcclFacts::Channel& c = r.channel;
    // Without a communicator two like connections may be two.
    if (c.communicator >= 0 &&
        !seen.emplace(c.communicator, c.number, c.from, c.to, c.transport).second) {
      continue;
    }
    facts.channels.push_back(c);
  }
}

void Log::settle_hosts() {
  int32_t largest = 0;
  for (const auto& it : facts.communicators) largest = std::max(largest, it.ranks);
  for (const auto& it : facts.communicators) {
    if (it.ranks == largest) facts.rank_host.emplace(it.rank, it.host);
  }
  if (facts.rank_host.size() != static_cast<size_t>(largest)) {
    if (largest > 0) {
      facts.warnings.push_back(
          format("%zu of %d ranks are seen: the others log elsewhere, or not at all",
                 facts.rank_host.size(),
                 largest));
    }
    return;
  }
  std::set<std::string> hosts;
  for (const auto& [rank, host] : facts.rank_host) hosts.insert(host);
  for (auto& it : facts.communicators) {
    if (it.ranks != largest || it.nodes != 0) continue;
    it.nodes = static_cast<int32_t>(hosts.size());
  }
}

NcclFacts Log::finish() {
  settle_channels();
  settle_hosts();
  for (const auto& [text, count] : problems_) {
    facts.problems.push_back(
        count > 1 ? format("%s (%lld times)", text.c_str(), static_cast<long long>(count)) : text);
  }
  const auto all = [](const std::set<std::string>& names) {
    return join(std::vector<std::string>(names.begin(), names.end()), ", ");
  };
  if (versions_.size() > 1) {
    facts.warnings.push_back("ranks use different versions of NCCL: " + all(versions_));
  }
  if (networks_.size() > 1) {
    facts.warnings.push_back("ranks use different networks: " + all(networks_));
  }
  if (interleaved_ > 0) {
    facts.warnings.push_back(
        format("%lld messages begin amid another line or without their prefix (ranks that write "
               "to one file without locking): used where they are whole",
               static_cast<long long>(interleaved_)));
  }
  if (damaged_ > 0) {
    facts.warnings.push_back(format("%lld messages of channels or communicators are cut: not used",
                                    static_cast<long long>(damaged_)));
  }
  if (tuning_left_ > 0) {
    facts.warnings.push_back(format("%lld more lines of algorithm choices are left out",
                                    static_cast<long long>(tuning_left_)));
  }
  return std::move(facts);
}

}  // namespace

bool is_nccl_line(std::string_view line) {
  return holds(line, " NCCL INFO ") || holds(line, " NCCL WARN ") ||
         starts(line, "NCCL version ") || starts(line, "RCCL version ");
}

NcclFacts read_nccl_log(const std::string& path) {
  LineReader reader(path);
  Log log;
  std::string_view line;
  std::string without_zeros;
  int64_t lines_with_zeros = 0;
  while (reader.next(line)) {
    if (line.find('\0') != std::string_view::npos) {
      ++lines_with_zeros;
      without_zeros = line;
      std::erase(without_zeros, '\0');
      line = without_zeros;
    }
    log.line(line);
  }
  if (log.messages() == 0) {
    throw IoError(
        format("%s has no line of NCCL in %lld: expected lines like \"host:pid:tid [0] "
               "NCCL INFO ...\"; run the job with NCCL_DEBUG=INFO (and "
               "NCCL_DEBUG_SUBSYS=INIT,ENV,GRAPH,TUNING)",
               path.c_str(),
               static_cast<long long>(log.facts.lines)));
  }
  NcclFacts facts = log.finish();
  facts.source = path;
  if (!reader.problem().empty()) facts.warnings.push_back(reader.problem());
  if (lines_with_zeros > 0) {
    facts.warnings.push_back(
        format("%lld lines hold zero bytes (was the log cut while it was written, or copied while "
               "the disk was full?): these are passed over",
               static_cast<long long>(lines_with_zeros)));
  }
  return facts;
}

}  // namespace vitrine

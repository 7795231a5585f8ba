// fork and exec of the ranks, one poll loop over their ends, their output and the launcher's
// signals.
#include "comm/launcher.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>

#include "comm/tcp_socket.h"
#include "core/error.h"
#include "core/format.h"
#include "core/parallel.h"

extern char** environ;

namespace vitrine {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr size_t kTailBytes = 4096;
constexpr size_t kTailLines = 20;

// SIGINT, SIGTERM and SIGCHLD as readable events for as long as this lives.
class SignalEvents {
 public:
  SignalEvents() {
    sigemptyset(&taken_);
    for (const int s : {SIGINT, SIGTERM, SIGCHLD}) sigaddset(&taken_, s);
    pthread_sigmask(SIG_BLOCK, &taken_, &before_);
    events_ = Socket(signalfd(-1, &taken_, SFD_CLOEXEC | SFD_NONBLOCK));
  }
  ~SignalEvents() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalEvents(const SignalEvents&) = delete;
  SignalEvents& operator=(const SignalEvents&) = delete;

  int fd() const { return events_.fd(); }
  const sigset_t& before() const { return before_; }
  std::optional<int> next() const {
    signalfd_siginfo info{};
    if (read(events_.fd(), &info, sizeof(info)) != sizeof(info)) return std::nullopt;
    return static_cast<int>(info.ssi_signo);
  }

 private:
  sigset_t taken_{}, before_{};
  Socket events_;
};

std::map<std::string, std::string> shared_environment(const LaunchOptions& options) {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string::npos) variables[text.substr(0, equals)] = text.substr(equals + 1);
  }
  // Of a launcher around this one, whose port is not ours.
  variables.erase("TORCHELASTIC_USE_AGENT_STORE");
  const int threads = std::max(1, effective_cpus() / options.ranks);
  variables.emplace("OMP_NUM_THREADS", std::to_string(threads));
  variables.emplace("OMP_WAIT_POLICY", "passive");
  variables.emplace("GOMP_SPINCOUNT", kOpenMpSpins);
  variables["WORLD_SIZE"] = variables["LOCAL_WORLD_SIZE"] = std::to_string(options.ranks);
  variables["MASTER_ADDR"] = "127.0.0.1";
  variables["MASTER_PORT"] = std::to_string(free_port());
  for (const auto& [name, value] : options.environment) variables[name] = value;
  return variables;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> list;
  for (std::string& text : texts) list.push_back(text.data());
  list.push_back(nullptr);
  return list;
}

std::string error_text(int error) { return std::strerror(error); }

class Launch {
 public:
  explicit Launch(const LaunchOptions& options) : options_(options) {}
  ~Launch() {
    // Only after an exception are any left.
    for (const Rank& rank : ranks_) {
      if (rank.pid > 0) kill(-rank.pid, SIGKILL);
      if (rank.pid > 0) waitpid(rank.pid, nullptr, 0);
    }
  }
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;

  LaunchResult run() {
    start_all();
    while (running() > 0) step();
    // What a rank wrote last; a process that it left behind may hold the pipe open, so not for
    // ever.
    const Deadline end = steady_clock::now() + milliseconds(500);
    while ((pipes_[0] || pipes_[1]) && steady_clock::now() < end) pass_output(20);
    summarise();
    return std::move(result_);
  }

 private:
  struct Rank {
    pid_t pid = -1;  // -1 after its end
    Socket log;
  };

  std::filesystem::path log_path(int rank) const {
    return options_.log_folder / ("rank" + std::to_string(rank) + ".log");
  }

  void start_all() {
    std::error_code error;
    std::filesystem::create_directories(options_.log_folder, error);
    if (error) {
      throw IoError("cannot make the log folder " + options_.log_folder.string() + ": " +
                    error.message());
    }
    const auto shared = shared_environment(options_);
    ranks_.resize(static_cast<size_t>(options_.ranks));
    result_.ranks.resize(ranks_.size());
    for (int r = 0; r < options_.ranks; ++r) start(r, shared);
  }

  void start(int r, std::map<std::string, std::string> variables) {
    Rank& rank = ranks_[static_cast<size_t>(r)];
    const std::string path = log_path(r).string();
    const int keep = options_.append_logs ? 0 : O_TRUNC;
    rank.log = Socket(open(path.c_str(), O_WRONLY | O_CREAT | keep | O_APPEND | O_CLOEXEC, 0644));
    if (!rank.log) throw IoError("cannot write " + path + ": " + error_text(errno));
    Socket writing[2];
    if (r == 0) {
      for (size_t i = 0; i < 2; ++i) {
        int ends[2];
        if (pipe2(ends, O_CLOEXEC) != 0) throw IoError("pipe: " + error_text(errno));
        pipes_[i] = Socket(ends[0]);
        writing[i] = Socket(ends[1]);
        fcntl(ends[0], F_SETFL, O_NONBLOCK);
      }
    }
    const int out = r == 0 ? writing[0].fd() : rank.log.fd();
    const int error = r == 0 ? writing[1].fd() : rank.log.fd();
    variables["RANK"] = variables["LOCAL_RANK"] = std::to_string(r);
    rank.pid = spawn(variables, out, error);
  }

  // Throws IoError when the program cannot be executed.
  pid_t spawn(const std::map<std::string, std::string>& variables, int out, int error) {
    std::vector<std::string> arguments = {options_.executable}, settings;
    arguments.insert(arguments.end(), options_.arguments.begin(), options_.arguments.end());
    for (const auto& [name, value] : variables) settings.push_back(name + "=" + value);
    const std::vector<char*> argv = pointers(arguments), envp = pointers(settings);
    int report[2];  // closed by a successful exec, written by a failed one
    if (pipe2(report, O_CLOEXEC) != 0) throw IoError("pipe: " + error_text(errno));
    const Socket reading(report[0]);
    Socket writing(report[1]);
    const pid_t launcher = getpid();
    const pid_t pid = fork();
    if (pid < 0) throw IoError("cannot start a process: " + error_text(errno));
    if (pid == 0) {
      // From here to exec only calls that are safe after fork. posix_spawn cannot set the death
      // signal.
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != launcher) _exit(127);
      setpgid(0, 0);  // the terminal's Ctrl-C comes through the launcher, once
      const int nothing = open("/dev/null", O_RDONLY);
      dup2(nothing, 0);
      dup2(out, 1);
      dup2(error, 2);
      pthread_sigmask(SIG_SETMASK, &signals_.before(), nullptr);
      execve(options_.executable.c_str(), argv.data(), envp.data());
      const int why = errno;
      [[maybe_unused]] const ssize_t n = write(report[1], &why, sizeof(why));
      _exit(127);
    }
    writing.close();
    int why = 0;
    if (read(reading.fd(), &why, sizeof(why)) == sizeof(why)) {
      waitpid(pid, nullptr, 0);
      throw IoError("cannot execute " + options_.executable + ": " + error_text(why));
    }
    return pid;
  }

  size_t running() const {
    return static_cast<size_t>(
        std::count_if(ranks_.begin(), ranks_.end(), [](const Rank& r) { return r.pid > 0; }));
  }

  void step() {
    pass_output(wait_ms());
    while (const auto signal = signals_.next()) {
      if (*signal == SIGCHLD) continue;
      if (result_.signal == 0) result_.signal = *signal;
      begin_stopping();
      send_all(*signal);
    }
    reap();
    press_on();
  }

  int wait_ms() const {
    if (!next_push_) return 1000;
    const auto left =
        std::chrono::duration_cast<milliseconds>(*next_push_ - steady_clock::now()).count();
    return static_cast<int>(std::clamp<int64_t>(left + 1, 0, 1000));
  }

  // Copies what rank 0 wrote to its log and to the terminal; returns early at signals.
  void pass_output(int timeout_ms) {
    pollfd entries[] = {
        {signals_.fd(), POLLIN, 0}, {pipes_[0].fd(), POLLIN, 0}, {pipes_[1].fd(), POLLIN, 0}};
    if (poll(entries, 3, timeout_ms) <= 0) return;
    for (size_t i = 0; i < 2; ++i) {
      if (pipes_[i] && entries[i + 1].revents != 0) pass(pipes_[i], i);
    }
  }

  void pass(Socket& pipe, size_t which) {
    char chunk[65536];
    for (;;) {
      const ssize_t n = read(pipe.fd(), chunk, sizeof(chunk));
      if (n == 0) return pipe.close();
      if (n < 0) return;
      write_all(ranks_[0].log.fd(), chunk, static_cast<size_t>(n));
      write_all(which == 0 ? options_.out_fd : options_.error_fd, chunk, static_cast<size_t>(n));
    }
  }

  static void write_all(int fd, const char* data, size_t bytes) {
    while (fd >= 0 && bytes > 0) {
      const ssize_t n = write(fd, data, bytes);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return;  // a closed terminal or a full disk must not stop the run
      data += n;
      bytes -= static_cast<size_t>(n);
    }
  }

  void reap() {
    std::vector<int> failed;
    for (int r = 0; r < options_.ranks; ++r) {
      Rank& rank = ranks_[static_cast<size_t>(r)];
      int status = 0;
      if (rank.pid <= 0 || waitpid(rank.pid, &status, WNOHANG) != rank.pid) continue;
      rank.pid = -1;
      RankExit& end = result_.ranks[static_cast<size_t>(r)];
      if (WIFSIGNALED(status)) end.signal = WTERMSIG(status);
      if (WIFEXITED(status)) end.exit_code = WEXITSTATUS(status);
      end.stopped_by_us = pushes_ > 0;
      if (!end.ok()) failed.push_back(r);
    }
    if (failed.empty() || result_.failed_rank >= 0) return;
    // Of several that ended together, one that was killed is rather the cause than one that gave
    // up.
    const auto killed = std::find_if(failed.begin(), failed.end(), [&](int r) {
      return result_.ranks[static_cast<size_t>(r)].signal != 0;
    });
    result_.failed_rank = killed != failed.end() ? *killed : failed.front();
    failed_after_ = steady_clock::now() - started_;
    begin_stopping();
  }

  void begin_stopping() {
    if (!next_push_) next_push_ = steady_clock::now() + options_.grace;
  }

  // First SIGTERM, then SIGKILL, to those that did not stop by themselves.
  void press_on() {
    if (!next_push_ || steady_clock::now() < *next_push_) return;
    send_all(pushes_++ == 0 ? SIGTERM : SIGKILL);
    next_push_ = steady_clock::now() + options_.kill_after;
  }

  void send_all(int signal) const {
    for (const Rank& rank : ranks_) {
      if (rank.pid > 0) kill(-rank.pid, signal);
      // A stopped process acts on no signal but SIGKILL.
      if (rank.pid > 0 && signal != SIGKILL) kill(-rank.pid, SIGCONT);
    }
  }

  static std::string ending(const RankExit& end) {
    if (end.signal == 0) return "exited with code " + std::to_string(end.exit_code);
    return "was killed by signal " + std::to_string(end.signal) + " (" + strsignal(end.signal) +
           ")";
  }

  void summarise() {
    if (result_.failed_rank < 0) {
      result_.summary =
          std::to_string(options_.ranks) + (options_.ranks == 1 ? " rank" : " ranks") + " finished";
      if (result_.signal != 0)
        result_.summary += " after " + std::string(strsignal(result_.signal));
      return;
    }
    const auto seconds = std::chrono::duration<double, std::nano>(failed_after_).count();
    const RankExit& first = result_.ranks[static_cast<size_t>(result_.failed_rank)];
    std::string text = "rank " + std::to_string(result_.failed_rank) + " " + ending(first) +
                       " after " + format_ns(seconds);
    if (first.signal == SIGKILL && result_.signal == 0 && !first.stopped_by_us) {
      text += ", as the kernel does when memory runs out";
    }
    for (int r = 0; r < options_.ranks; ++r) {
      const RankExit& end = result_.ranks[static_cast<size_t>(r)];
      if (r == result_.failed_rank || end.ok()) continue;
      text += "; rank " + std::to_string(r) + " " + ending(end);
      if (end.stopped_by_us && end.signal != 0) text += ", as it did not stop by itself";
    }
    result_.summary = text + "; log: " + log_path(result_.failed_rank).string();
    result_.log_tail = tail(log_path(result_.failed_rank));
  }

  static std::string tail(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary | std::ios::ate);
    const std::streamoff size = file ? static_cast<std::streamoff>(file.tellg()) : 0;
    const std::streamoff begin = std::max<std::streamoff>(0, size - std::streamoff{kTailBytes});
    std::string text(static_cast<size_t>(size - begin), '\0');
    file.seekg(begin);
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<size_t>(std::max<std::streamsize>(0, file.gcount())));
    size_t at = text.size();
    for (size_t lines = 0; at > 0; --at) {
      if (text[at - 1] == '\n' && at < text.size() && ++lines == kTailLines) break;
    }
    return text.substr(at);
  }

  const LaunchOptions& options_;
  const SignalEvents signals_;
  std::vector<Rank> ranks_;
  Socket pipes_[2];  // rank 0's stdout and stderr
  const steady_clock::time_point started_ = steady_clock::now();
  steady_clock::duration failed_after_{};
  std::optional<Deadline> next_push_;  // when those still running are sent the next signal
  int pushes_ = 0;
  LaunchResult result_;
};

}  // namespace

LaunchResult launch_ranks(const LaunchOptions& options) {
  if (options.ranks < 1) {
    throw ConfigError("expected at least one rank, got " + std::to_string(options.ranks));
  }
  if (options.ranks > kMostLocalRanks) {
    throw ConfigError(
        format("%d ranks would be as many processes of this host, which starts at most %d; a "
               "launcher (torchrun, Slurm, mpirun) spreads ranks over hosts",
               options.ranks,
               kMostLocalRanks));
  }
  return Launch(options).run();
}

}  // namespace vitrine

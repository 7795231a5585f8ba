// Runs the built `vitrine` program: its exit code, both streams apart, and a hand on the running
// process.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "support/scratch.h"

namespace vitrine {

inline const char* vitrine_binary() { return std::getenv("VITRINE_BIN"); }

// A command that runs in a folder of its own until it ends, is waited for, or the object dies.
class RunningCommand {
 public:
  RunningCommand(const std::vector<std::string>& arguments, const std::string& folder) {
    if (vitrine_binary() == nullptr)
      throw std::runtime_error("VITRINE_BIN is not set: run through ctest");
    std::vector<char*> argv = {const_cast<char*>(vitrine_binary())};
    for (const std::string& argument : arguments)
      argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    const std::string out = outputs_ / "out", error = outputs_ / "error";
    pid_ = fork();
    if (pid_ == 0) {
      const int out_fd = open(out.c_str(), O_CREAT | O_WRONLY, 0600);
      const int error_fd = open(error.c_str(), O_CREAT | O_WRONLY, 0600);
      dup2(out_fd, 1);
      dup2(error_fd, 2);
      if (chdir(folder.c_str()) == 0) execv(argv[0], argv.data());
      _exit(127);
    }
  }
  ~RunningCommand() {
    if (!code_) kill_now();
  }
  RunningCommand(const RunningCommand&) = delete;
  RunningCommand& operator=(const RunningCommand&) = delete;

  pid_t pid() const { return pid_; }
  void kill_now() {
    ::kill(pid_, SIGKILL);
    wait(std::chrono::seconds(10));
  }
  // The exit code (-signal when killed); nothing when it still runs after `patience`.
  std::optional<int> wait(std::chrono::milliseconds patience) {
    const auto end = std::chrono::steady_clock::now() + patience;
    while (!code_) {
      int status = 0;
      if (waitpid(pid_, &status, WNOHANG) == pid_) {
        code_ = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
      } else if (std::chrono::steady_clock::now() > end) {
        break;
      } else {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
    }
    return code_;
  }
  std::string out() const { return read(outputs_ / "out"); }
  std::string error() const { return read(outputs_ / "error"); }

 private:
  static std::string read(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  ScratchFolder outputs_;
  pid_t pid_ = -1;
  std::optional<int> code_;
};

struct CommandResult {
  int code = -1;
  std::string out, error;
};

inline CommandResult run_vitrine(const std::vector<std::string>& arguments,
                                 const std::string& folder = ".") {
  RunningCommand command(arguments, folder);
  const auto code = command.wait(std::chrono::seconds(120));
  if (!code) ADD_FAILURE() << "the command did not end: " << arguments[0];
  return {code.value_or(-1000), command.out(), command.error()};
}

}  // namespace vitrine

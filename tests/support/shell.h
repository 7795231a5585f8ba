// Output (both streams) and exit status of a shell command.
#pragma once

#include <sys/wait.h>

#include <cstdio>
#include <string>
#include <utility>

namespace vitrine {

inline std::pair<std::string, int> run_shell(const std::string& command) {
  std::string out;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  char block[4096];
  size_t n = 0;
  while ((n = fread(block, 1, sizeof(block), pipe)) > 0) out.append(block, n);
  const int status = pclose(pipe);
  return {out, WIFEXITED(status) ? WEXITSTATUS(status) : -1};
}

inline bool have_python() { return run_shell("python3 --version").second == 0; }

}  // namespace vitrine

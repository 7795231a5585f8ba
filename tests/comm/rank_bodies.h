// What this test binary does when a test starts it again as a rank.
#pragma once

#include <string>

namespace vitrine::testing {

// Runs the named body in this process, which the launcher's variables make a rank; returns its exit
// code. What happened is said on standard output.
int run_rank_body(const std::string& name);

}  // namespace vitrine::testing

// Ranks of a command: started here as processes, or found in the environment of a launcher.
#pragma once

#include <functional>
#include <string>

#include "cli/commands.h"
#include "comm/communicator.h"

namespace vitrine {

// Starts `ranks` processes of this program with the same arguments and reports how they ended, when
// ranks > 1 and no launcher has set RANK; otherwise runs `work` as one rank of the world that the
// environment describes (null = alone). Compute threads are shared out over the ranks of this host.
// `device` is "cpu" or "gpu": the world of one GPU a rank, by local rank; throws DeviceError before
// anything is started when there are fewer GPUs. A CommError of `work` is reported with the rank
// that is to blame.
int run_ranks(int ranks,
              const CommandLine& line,
              const std::string& log_folder,
              double timeout_seconds,
              const std::string& device,
              const std::function<int(World*)>& work);

// The ranks that there will be: from the environment of a launcher, else `asked`. Throws UsageError
// when both speak and differ.
int world_size(int asked);

}  // namespace vitrine

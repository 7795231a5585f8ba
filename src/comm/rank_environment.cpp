// Reads where this process stands from what launchers set.
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>

#include "comm/communicator.h"
#include "core/error.h"

namespace vitrine {
namespace {

constexpr int kDefaultPort = 29500;  // torchrun's

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

std::optional<int> number(const char* name) {
  const auto text = variable(name);
  if (!text) return std::nullopt;
  int value = 0;
  const char* end = text->data() + text->size();
  const auto result = std::from_chars(text->data(), end, value);
  if (result.ec != std::errc() || result.ptr != end || value < 0) {
    throw ConfigError(std::string(name) + " is '" + *text + "': expected a number from 0 up");
  }
  return value;
}

// The names one launcher uses; empty where it has none.
struct Names {
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
  const char* hosts;
};

// True when this launcher started the process.
bool read_ranks(const Names& names, RankEnvironment& environment) {
  const auto rank = number(names.rank), size = number(names.size);
  if (!rank && !size) return false;
  if (!rank || !size) {
    throw ConfigError(std::string(rank ? names.rank : names.size) + " is set but " +
                      (rank ? names.size : names.rank) +
                      " is not: set both (a launcher does), or neither for one rank alone");
  }
  if (*size < 1 || *rank >= *size) {
    throw ConfigError(std::string(names.rank) + "=" + std::to_string(*rank) + " and " + names.size +
                      "=" + std::to_string(*size) +
                      " do not fit: ranks count from 0 to the size less one");
  }
  environment.rank = *rank;
  environment.size = *size;
  const auto local_rank = number(names.local_rank), local_size = number(names.local_size);
  // Without a word about hosts, all ranks are taken to be on this one.
  const int hosts = std::max(number(names.hosts).value_or(1), 1);
  environment.local_rank = local_rank.value_or(*rank);
  environment.local_size = local_size.value_or((*size + hosts - 1) / hosts);
  if (environment.local_rank >= environment.local_size || environment.local_size > *size) {
    throw ConfigError(std::string(names.local_rank) + "=" + std::to_string(environment.local_rank) +
                      " does not fit " + std::to_string(environment.local_size) +
                      " ranks on this host and " + std::to_string(*size) + " in all");
  }
  return true;
}

bool is_true(const std::optional<std::string>& text) {
  return text && (*text == "True" || *text == "true" || *text == "1");
}

void read_master(RankEnvironment& environment, bool address_required) {
  const auto address = variable("MASTER_ADDR");
  const auto port = number("MASTER_PORT");
  const bool one_host = environment.local_size == environment.size;
  if (!address && (address_required || !one_host)) {
    throw ConfigError("MASTER_ADDR is not set: " + std::to_string(environment.size) +
                      " ranks need the address of the host that runs rank 0");
  }
  if (!port && address_required) {
    throw ConfigError("MASTER_PORT is not set: " + std::to_string(environment.size) +
                      " ranks need a free port of the host that runs rank 0");
  }
  if (address) environment.master_address = *address;
  environment.master_port = port.value_or(kDefaultPort);
  // Jobs that share a host must not share a port.
  const auto job = number("SLURM_JOB_ID");
  if (!port && job) environment.master_port = 20000 + *job % 10000;
  // torchrun's own agent serves its store on MASTER_PORT.
  if (is_true(variable("TORCHELASTIC_USE_AGENT_STORE"))) ++environment.master_port;
  if (environment.master_port < 1 || environment.master_port > 65535) {
    throw ConfigError("MASTER_PORT gives port " + std::to_string(environment.master_port) +
                      ": expected 1 to 65535");
  }
}

}  // namespace

RankEnvironment rank_environment() {
  RankEnvironment environment;
  const bool plain = read_ranks(
      {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE"}, environment);
  // Inside a batch script, but not in a task of srun, only SLURM_NTASKS is set: one process alone.
  const bool slurm = !plain && variable("SLURM_PROCID") &&
                     read_ranks({"SLURM_PROCID",
                                 "SLURM_NTASKS",
                                 "SLURM_LOCALID",
                                 "SLURM_NTASKS_PER_NODE",
                                 "SLURM_STEP_NUM_NODES"},
                                environment);
  const bool mpi = !plain && !slurm &&
                   read_ranks({"OMPI_COMM_WORLD_RANK",
                               "OMPI_COMM_WORLD_SIZE",
                               "OMPI_COMM_WORLD_LOCAL_RANK",
                               "OMPI_COMM_WORLD_LOCAL_SIZE",
                               "OMPI_MCA_orte_num_nodes"},
                              environment);
  if ((plain || slurm || mpi) && environment.size > 1) read_master(environment, plain);
  environment.ranks_per_gpu = number("VITRINE_RANKS_PER_GPU").value_or(1);
  if (environment.ranks_per_gpu < 1)
    throw ConfigError("VITRINE_RANKS_PER_GPU is 0: expected how many ranks share a GPU, 1 or more");
  return environment;
}

}  // namespace vitrine

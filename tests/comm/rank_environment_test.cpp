// What launchers set, read back; and what is said when they set half of it.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "comm/communicator.h"
#include "core/error.h"

namespace vitrine {
namespace {

using Variables = std::map<std::string, std::string>;

RankEnvironment read(const Variables& variables) {
  for (const char* name : {"RANK",
                           "WORLD_SIZE",
                           "LOCAL_RANK",
                           "LOCAL_WORLD_SIZE",
                           "MASTER_ADDR",
                           "MASTER_PORT",
                           "TORCHELASTIC_USE_AGENT_STORE",
                           "SLURM_PROCID",
                           "SLURM_NTASKS",
                           "SLURM_LOCALID",
                           "SLURM_NTASKS_PER_NODE",
                           "SLURM_STEP_NUM_NODES",
                           "SLURM_JOB_ID",
                           "OMPI_COMM_WORLD_RANK",
                           "OMPI_COMM_WORLD_SIZE",
                           "OMPI_COMM_WORLD_LOCAL_RANK",
                           "OMPI_COMM_WORLD_LOCAL_SIZE",
                           "VITRINE_RANKS_PER_GPU"}) {
    unsetenv(name);
  }
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  return rank_environment();
}

const Variables kTorchrun = {{"RANK", "5"},
                             {"WORLD_SIZE", "8"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "4"},
                             {"MASTER_ADDR", "node0"},
                             {"MASTER_PORT", "29400"}};

Variables with(Variables variables, const std::string& name, const std::string& value) {
  variables[name] = value;
  return variables;
}
Variables without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

TEST(RankEnvironment, IsOneRankAloneWithoutALauncher) {
  const RankEnvironment e = read({});
  EXPECT_EQ(e.rank, 0);
  EXPECT_EQ(e.size, 1);
  EXPECT_EQ(read({{"SLURM_NTASKS", "4"}}).size, 1);  // in salloc's shell
}

TEST(RankEnvironment, ReadsTorchrunsVariables) {
  const RankEnvironment e = read(kTorchrun);
  EXPECT_EQ(e.rank, 5);
  EXPECT_EQ(e.size, 8);
  EXPECT_EQ(e.local_rank, 1);
  EXPECT_EQ(e.local_size, 4);
  EXPECT_EQ(e.master_address, "node0");
  EXPECT_EQ(e.master_port, 29400);
}

TEST(RankEnvironment, LeavesTheMasterPortToTorchrunsAgent) {
  EXPECT_EQ(read(with(kTorchrun, "TORCHELASTIC_USE_AGENT_STORE", "True")).master_port, 29401);
  EXPECT_EQ(read(with(kTorchrun, "TORCHELASTIC_USE_AGENT_STORE", "False")).master_port, 29400);
}

TEST(RankEnvironment, ReadsSlurmAndOpenMpiInThisOrder) {
  Variables both = {{"SLURM_PROCID", "2"},
                    {"SLURM_NTASKS", "3"},
                    {"SLURM_JOB_ID", "123456"},
                    {"OMPI_COMM_WORLD_RANK", "1"},
                    {"OMPI_COMM_WORLD_SIZE", "2"},
                    {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                    {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
  const RankEnvironment slurm = read(both);
  EXPECT_EQ(slurm.rank, 2);
  EXPECT_EQ(slurm.size, 3);
  EXPECT_EQ(slurm.master_port, 23456);
  both.erase("SLURM_PROCID");
  both.erase("SLURM_JOB_ID");
  const RankEnvironment mpi = read(both);
  EXPECT_EQ(mpi.rank, 1);
  EXPECT_EQ(mpi.size, 2);
  EXPECT_EQ(mpi.master_address, "127.0.0.1");
}

TEST(RankEnvironment, RanksShareAGpuOnlyWhenAsked) {
  EXPECT_EQ(read(kTorchrun).gpu(), 1);
  EXPECT_EQ(read(with(kTorchrun, "VITRINE_RANKS_PER_GPU", "2")).gpu(), 0);
  EXPECT_EQ(read(with(with(kTorchrun, "VITRINE_RANKS_PER_GPU", "2"), "LOCAL_RANK", "3")).gpu(), 1);
  EXPECT_THROW(read(with(kTorchrun, "VITRINE_RANKS_PER_GPU", "0")), ConfigError);
}

TEST(RankEnvironment, RefusesHalfOfTheVariables) {
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    try {
      read(without(kTorchrun, name));
      ADD_FAILURE() << name << " was not missed";
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
    }
  }
  // Ranks on several hosts can't guess where rank 0 is.
  EXPECT_THROW(read({{"OMPI_COMM_WORLD_RANK", "1"},
                     {"OMPI_COMM_WORLD_SIZE", "4"},
                     {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                     {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}),
               ConfigError);
}

TEST(RankEnvironment, RefusesNumbersThatAreNone) {
  EXPECT_THROW(read(with(kTorchrun, "RANK", "five")), ConfigError);
  EXPECT_THROW(read(with(kTorchrun, "RANK", "-1")), ConfigError);
  EXPECT_THROW(read(with(kTorchrun, "RANK", "8")), ConfigError);
  EXPECT_THROW(read(with(kTorchrun, "LOCAL_RANK", "4")), ConfigError);
  EXPECT_THROW(read(with(kTorchrun, "MASTER_PORT", "66000")), ConfigError);
  EXPECT_THROW(read(with(kTorchrun, "WORLD_SIZE", "0")), ConfigError);
}

}  // namespace
}  // namespace vitrine

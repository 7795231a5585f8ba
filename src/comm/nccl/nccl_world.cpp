// The NCCL communicators of one process: unique ids go round by Gloo, as do host messages.
#include <cstdlib>
#include <map>

#include "comm/call_checks.h"
#include "comm/nccl/nccl.h"
#include "comm/nccl/nccl_communicator.h"
#include "core/error.h"
#include "core/format.h"
#include "gpu/gpu.h"

namespace vitrine {
namespace {

class NcclWorld : public World {
 public:
  NcclWorld(std::shared_ptr<NcclWatch> watch, int device, std::chrono::milliseconds timeout)
      : device_(device), timeout_(timeout), watch_(std::move(watch)), host_(watch_->host()) {}

  int rank() const override { return host_.rank(); }
  int size() const override { return host_.size(); }

  std::shared_ptr<Communicator> group(const std::vector<int>& ranks,
                                      const std::string& name) override {
    const int group_rank = check_group(name, ranks, rank(), size());
    watch_->check("group '" + name + "'");
    VITRINE_GPU_CHECK(cudaSetDevice(device_));
    ncclComm_t comm = nullptr;
    std::shared_ptr<Communicator> host;
    if (ranks.size() > 1) {
      comm = initialise(ranks, group_rank, name);
      host = rendezvous_[ranks];
    }
    const auto made =
        std::make_shared<NcclCommunicator>(comm, host, watch_, ranks, group_rank, name, timeout_);
    made->set_context(-1, "the making of the group");
    made->connect();
    made->set_context(-1, "");
    return made;
  }
  std::shared_ptr<Communicator> host_group(const std::vector<int>& ranks,
                                           const std::string& name) override {
    return host_.host_group(ranks, name);
  }

  void check() override { watch_->check(); }
  void abort(const std::string& reason) noexcept override {
    watch_->fail("aborted by rank " + std::to_string(rank()) + ": " + reason, -1);
    host_.abort(reason);
  }
  Suspect suspect() override { return host_.suspect(); }
  void progress(int64_t step, const std::string& what) override { host_.progress(step, what); }

 private:
  ncclComm_t initialise(const std::vector<int>& ranks, int group_rank, const std::string& name) {
    // Everyone is here after the broadcast and its barrier, or Gloo says who is missing: NCCL's own
    // rendezvous would wait without a word.
    std::shared_ptr<Communicator>& host = rendezvous_[ranks];
    if (!host) host = host_.host_group(ranks, "rendezvous");
    host->set_context(-1, "the making of group '" + name + "'");
    ncclUniqueId id{};
    ncclResult_t code = group_rank == 0 ? ncclGetUniqueId(&id) : ncclSuccess;
    host->broadcast(std::as_writable_bytes(std::span(&id, 1)), 0);
    host->barrier();
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    config.commName = name.c_str();
    ncclComm_t comm = nullptr;
    if (code == ncclSuccess) {
      code = ncclCommInitRankConfig(&comm, static_cast<int>(ranks.size()), id, group_rank, &config);
    }
    if (code == ncclSuccess) return comm;
    std::vector<std::string> members;
    for (const int r : ranks) members.push_back(std::to_string(r));
    const char* last = ncclGetLastError(nullptr);
    watch_->fail_with_suspect("making NCCL group '" + name + "' of ranks " + join(members, ", ") +
                              ": " + ncclGetErrorString(code) +
                              (last && *last ? std::string(" (") + last + ")" : "") +
                              "; NCCL_DEBUG=INFO shows more");
    watch_->check();
    return nullptr;
  }

  const int device_;
  const std::chrono::milliseconds timeout_;
  const std::shared_ptr<NcclWatch> watch_;
  World& host_;  // the watch's
  std::map<std::vector<int>, std::shared_ptr<Communicator>> rendezvous_;
};

}  // namespace

std::unique_ptr<World> make_nccl_world(const RankEnvironment& environment,
                                       std::chrono::milliseconds timeout) {
  const std::vector<GpuDescription> gpus = gpu_devices();  // throws where there is none
  const int device_index = environment.gpu();
  if (device_index >= static_cast<int>(gpus.size())) {
    throw DeviceError(format("rank %d wants GPU %d, this process can see %zu: one GPU a rank",
                             environment.rank,
                             device_index,
                             gpus.size()));
  }
  // NCCL refuses two ranks on one GPU of one host: they are to look like ranks of two.
  if (environment.ranks_per_gpu > 1)
    setenv("NCCL_HOSTID", format("vitrine-%d", environment.rank).c_str(), 0);
  auto watch = std::make_shared<NcclWatch>(device_index);
  watch->set_host(make_gloo_world(
      environment, timeout, [to = watch.get()](const std::string& why, int missing_rank) {
        to->fail(why, missing_rank);
      }));
  return std::make_unique<NcclWorld>(std::move(watch), device_index, timeout);
}

}  // namespace vitrine

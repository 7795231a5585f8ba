// Ranks as processes, one a GPU (or more, to try: RankEnvironment::ranks_per_gpu): collectives on
// device memory by NCCL, host messages by Gloo.
#pragma once

#include <chrono>
#include <memory>

#include "comm/communicator.h"

namespace vitrine {

// group() gives NCCL communicators: every pointer is device memory of environment.gpu(), a call
// enqueues into gpu::stream() of the calling thread and returns at once; when the data is there is
// the stream's matter. host_group() gives Gloo's. Errors come later than the calls that caused
// them: a thread watches the communicators, and a failed, aborted or late (`timeout` on the device)
// call ends all of them, after which every call and check() throw CommError. What a CUDA graph
// replays is ended with the rest, but not found late by itself.
//
// Sums: of two ranks rounded once, so equal bit for bit to the contract of Communicator; of more,
// in NCCL's own order, rounded to the dtype at each hop, but the same in every run of one
// machine and on every rank. Integers wrap. Ranks that disagree on a size are not found out: NCCL
// waits, or writes what came.
//
// Throws DeviceError where there is no GPU or no GPU code in this build, CommError where the ranks
// do not find each other. NCCL's own variables (NCCL_DEBUG, NCCL_NVLS_ENABLE, ...) hold.
std::unique_ptr<World> make_nccl_world(const RankEnvironment& environment,
                                       std::chrono::milliseconds timeout);

}  // namespace vitrine

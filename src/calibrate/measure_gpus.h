// Measurement of this machine's GPUs, for `vitrine calibrate --device gpu`.
#pragma once

#include <string>

#include "calibrate/calibrate.h"
#include "comm/communicator.h"
#include "machines/measured_gpus.h"

namespace vitrine {

// This rank's GPU (environment.gpu()) while all the others of `world` (null: alone) measure theirs:
// single calls, host link, products for long enough to be hot, passes over memory, issuing, and
// collectives between all of them. Collective over the world, whose ranks are of one host, one a
// GPU. Every rank gets the same answer, the slowest of each number. `quick`: fewer shapes and
// shorter loops. The GPUs should have nothing else to do. Throws DeviceError without a GPU, for a
// GPU whose products are wrong and where GPUs could not measure the same, OutOfMemory, ConfigError
// where they are not of one kind, CommError.
MeasuredGpus measure_gpus(World* world, const RankEnvironment& environment, bool quick);

// Its parts that speak to the other ranks, in host memory. Throws ConfigError.
void check_same_kind(Communicator& host, const MeasuredGpus& gpus);
// Every number becomes the slowest rank's; a rate that one rank lacks (0) is lacking. Throws
// DeviceError where ranks have other numbers of numbers.
void take_slowest(Communicator& host, MeasuredGpus& gpus);

// The host behind the GPUs.
struct MeasuredHost {
  std::string processor;
  int cpus = 1;
  double memory_bytes = 0, bytes_per_s = 0;  // a copy by all processors, read plus written
  DiskSpeed disk;
};
// `folder`: of the disk. On compute_threads() threads.
MeasuredHost measure_host(const std::string& folder, bool quick);

// A profile for make_cluster: over the shipped one of this card where there is one, with the rates
// that were reached, as this engine reaches them too (stack "vitrine, measured ..."). JSON text.
std::string gpu_profile_text(const MeasuredGpus& gpus, const MeasuredHost& host);

}  // namespace vitrine

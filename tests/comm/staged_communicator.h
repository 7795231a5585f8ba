// A communicator of device memory used with host memory: each call is copied in, waited for, and
// copied out, so that checks written for the host serve both.
#pragma once

#include <string>
#include <vector>

#include "comm/communicator.h"
#include "core/device.h"

namespace vitrine::testing {

class StagedCommunicator : public Communicator {
 public:
  StagedCommunicator(Communicator& inner, World& world, Device& device)
      : inner_(inner), world_(world), device_(device) {}

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  const std::vector<int>& global_ranks() const override { return inner_.global_ranks(); }
  const std::string& name() const override { return inner_.name(); }
  void all_gather(std::span<const std::byte> in, std::span<std::byte> out) override;
  void all_to_all(std::span<const std::byte> in, std::span<std::byte> out) override;
  void all_to_all_v(std::span<const std::byte> in,
                    std::span<const int64_t> in_bytes,
                    std::span<std::byte> out,
                    std::span<const int64_t> out_bytes) override;
  void broadcast(std::span<std::byte> data, int root) override;
  void send(std::span<const std::byte> data, int to) override;
  void receive(std::span<std::byte> data, int from) override;
  void barrier() override;
  void reduce_scatter(void* in, void* out, int64_t count, DType dtype) override;
  void all_reduce(void* data, int64_t count, DType dtype) override;
  void all_gather_v(std::span<const std::byte> in,
                    std::span<std::byte> out,
                    std::span<const int64_t> out_bytes) override;
  void reduce_scatter_v(void* in, std::span<const int64_t> counts, void* out, DType dtype) override;
  size_t reduce_scratch(std::span<const int64_t>, DType) const override { return 0; }
  void all_reduce_int64(std::span<int64_t> data) override;
  void abort() noexcept override { inner_.abort(); }

 protected:
  void exchange(std::span<const std::byte> in, std::span<std::byte> out) override;

 private:
  class Staged;  // device memory for one argument
  void wait();

  Communicator& inner_;
  World& world_;
  Device& device_;
};

}  // namespace vitrine::testing

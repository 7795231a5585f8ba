// The host as a device for tests to derive from, which change what they are about.
#pragma once

#include <string>

#include "core/device.h"

namespace vitrine::testing {

class ForwardingDevice : public Device {
 public:
  const std::string& name() const override { return host_.name(); }
  bool is_host() const override { return true; }
  void* allocate(size_t bytes) override { return host_.allocate(bytes); }
  void release(void* block, size_t bytes) noexcept override { host_.release(block, bytes); }
  size_t reserved_bytes() const override { return host_.reserved_bytes(); }
  void zero(void* to, size_t bytes) override { host_.zero(to, bytes); }
  void copy(void* to, const void* from, size_t bytes) override { host_.copy(to, from, bytes); }
  void upload(void* to, const void* host, size_t bytes) override { host_.upload(to, host, bytes); }
  void download(void* host, const void* from, size_t bytes) override {
    host_.download(host, from, bytes);
  }
  void convert(DType to, void* destination, DType from, const void* source, int64_t n) override {
    host_.convert(to, destination, from, source, n);
  }
  void add(DType dtype, void* sum, const void* term, int64_t count) override {
    host_.add(dtype, sum, term, count);
  }
  void enter_lane(int lane) override { host_.enter_lane(lane); }
  void mark(int) override {}
  void wait(int) override {}
  void synchronize_lane() override {}
  void synchronize() override {}

 private:
  Device& host_ = host_device();
};

}  // namespace vitrine::testing

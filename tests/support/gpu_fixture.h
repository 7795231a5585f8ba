// The first GPU for a test program; tests are skipped, saying why, where there is none.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "gpu/gpu.h"

namespace vitrine::test {

inline Device& gpu() {
  static auto* device = make_gpu_device(0).release();  // outlives every static buffer
  device->enter_lane(0);
  return *device;
}

class GpuFixture : public testing::Test {
 protected:
  void SetUp() override {
    const std::string why = why_no_gpu();
    if (!why.empty()) GTEST_SKIP() << why;
    gpu();  // this thread's work goes there
  }
};

}  // namespace vitrine::test

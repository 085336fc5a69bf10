// SPDX-License-Identifier: Apache-2.0
// The host of several tests: three GPUs that can be divided.
#pragma once

#include <array>

#include <gtest/gtest.h>

#include "tests/support/fake_kernel.h"
#include "tests/support/fake_mdev.h"

namespace ferry::host {

/// Three T4s, each in a group of its own, on the driver that divides them.
class ThreeT4s : public testing::Test {
 protected:
  static constexpr const char* kFirst = "0000:05:00.0";
  static constexpr const char* kSecond = "0000:06:00.0";
  static constexpr const char* kThird = "0000:07:00.0";
  static constexpr std::array kGpus = {kFirst, kSecond, kThird};

  ThreeT4s() {
    kernel_.add_driver({.name = "nvidia", .ids = {"10de:1eb8"}});
    unsigned group = 5;
    for (const char* address : kGpus) {
      add_t4(address, group++);
      mdev_.add_parent(address);
    }
  }
  void add_t4(const char* address, unsigned group) {
    kernel_.add_function(test::kinds::kTeslaT4Board, address, group, "nvidia");
  }

  test::FakeKernel kernel_;
  test::FakeMdev mdev_{kernel_};
};

}  // namespace ferry::host

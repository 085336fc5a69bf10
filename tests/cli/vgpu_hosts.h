// SPDX-License-Identifier: Apache-2.0
// Hosts for tests of the vGPU verbs, as a user calls them.
#pragma once

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/cli/run_program.h"
#include "tests/support/fake_vendor_vfio.h"
#include "tests/vfio/machines.h"

namespace ferry::test {

inline constexpr const char* kT4 = "0000:05:00.0";
inline constexpr const char* kA = "5b6c0f0e-3b1d-4f0e-9a57-2f6f5f1f7a10";

/// GPU 0 is a T4 that offers vGPUs, GPU 1 one on a driver that does not.
class VgpuVerbs : public testing::Test {
 protected:
  VgpuVerbs() {
    kernel_.add_driver({.name = "nvidia", .ids = {"10de:1eb8"}});
    kernel_.add_driver({.name = "nouveau", .ids = {"10de:2684"}});
    kernel_.add_function({.address = kT4, .ids = "10de:1eb8", .class_code = 0x030200, .driver = "nvidia"});
    kernel_.add_function({.address = "0000:07:00.0", .driver = "nouveau"});
    mdev_.add_parent(kT4);
    kernel_.file("etc/machine-id", "0123456789abcdef0123456789abcdef\n");
    kernel_.directory("proc/1/fd");
  }
  std::string path(const std::string& name) const { return (kernel_.root() / name).string(); }
  ProgramResult ferry(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--host-root", kernel_.root().string()});
    return run_ferry(arguments);
  }
  FakeKernel kernel_;
  FakeMdev mdev_{kernel_};
};

/// GPU 0 is an L40S that makes vGPUs of vendor-specific VFIO on four virtual functions.
class VgpuVerbsOnFunctions : public testing::Test {
 protected:
  static constexpr const char* kGpu = "0000:05:00.0";

  VgpuVerbsOnFunctions() {
    kernel_.add_driver({.name = "nvidia", .ids = {"10de:26b9"}, .sriov = true});
    kernel_.add_function({.address = kGpu,
                          .ids = "10de:26b9",
                          .class_code = 0x030200,
                          .group = 5,
                          .driver = "nvidia",
                          .totalvfs = 4});
    kernel_.enable_vfs(kGpu, 4);
    vendor_.add_gpu(
        kGpu, {{"nvidia-1153", "NVIDIA L40S-12Q", 12288, 4}, {"nvidia-1155", "NVIDIA L40S-24Q", 24576, 2}});
    kernel_.file("etc/machine-id", "0123456789abcdef0123456789abcdef\n");
    kernel_.directory("proc/1/fd");
    kernel_.file("p.yaml",
                 "version: v1\nvgpu-configs:\n  two:\n  - {devices: all, vgpu-devices: {L40S-12Q: 2}}\n");
  }
  ProgramResult ferry(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--host-root", kernel_.root().string()});
    return run_ferry(arguments);
  }
  std::string profile() const { return (kernel_.root() / "p.yaml").string(); }
  FakeKernel kernel_;
  FakeVendorVfio vendor_{kernel_};
};

/// An MI355X, whose virtual functions VMs get whole.
class VgpuVerbsOnWholeFunctions : public testing::Test {
 protected:
  static constexpr const char* kGpu = "0000:05:00.0";
  static constexpr const char* kFirst = "0000:05:00.4";

  VgpuVerbsOnWholeFunctions() {
    kernel_.add_driver({.name = "gim", .ids = {"1002:75a3", "1002:75b3"}, .sriov = true});
    kernel_.add_driver({.name = "vfio-pci", .vfio = true});
    kernel_.add_function({.address = kGpu,
                          .ids = "1002:75a3",
                          .class_code = 0x120000,
                          .group = 5,
                          .driver = "gim",
                          .totalvfs = 4,
                          .vf_ids = "1002:75b3"});
    kernel_.file("etc/machine-id", "0123456789abcdef0123456789abcdef\n");
    kernel_.directory("proc/1/fd");
    kernel_.file("p.yaml",
                 "version: v1\nvgpu-configs:\n  two:\n  - device-filter: \"0x75A31002\"\n    devices: all\n"
                 "    vgpu-devices: {\"1002:75b3\": 2}\n");
  }
  ProgramResult ferry(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--host-root", kernel_.root().string()});
    return run_ferry(arguments);
  }
  std::string profile() const { return (kernel_.root() / "p.yaml").string(); }
  void bind_first() {
    kernel_.enable_vfs(kGpu, 1);
    kernel_.file(std::string("sys/devices/pci0000:00/") + kFirst + "/driver_override", "vfio-pci\n");
    ASSERT_TRUE(kernel_.write("sys/bus/pci/drivers/gim/unbind", kFirst));
    ASSERT_TRUE(kernel_.write("sys/bus/pci/drivers/vfio-pci/bind", kFirst));
  }
  FakeKernel kernel_;
};

}  // namespace ferry::test

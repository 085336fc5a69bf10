// SPDX-License-Identifier: Apache-2.0
// The node that tests of GPU instances and mixed sizes work on.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "mdev/gpu_management.h"
#include "tests/support/fake_mig.h"
#include "tests/support/must.h"
#include "tests/vgpu-dm/gpu_node.h"
#include "vgpu-dm/apply/apply.h"

namespace ferry::test {

/// A node with one H200, without virtual functions and out of MIG mode, as after a boot.
class MigNode {
 public:
  static constexpr const char* kGpu = "0000:17:00.0";
  static constexpr unsigned kVfs = 8;

  MigNode() {
    kernel.add_driver({.name = "nvidia", .ids = {"10de:2335"}, .sriov = true});
    kernel.add_function({.address = kGpu,
                         .ids = "10de:2335",
                         .subsystem_ids = "10de:18be",
                         .class_code = 0x030200,
                         .group = 17,
                         .driver = "nvidia",
                         .totalvfs = kVfs});
    vendor.add_gpu(kGpu, h200_types());
  }
  vgpu::VgpuHost host() {
    return {.host = kernel,
            .writer = kernel,
            .uses = probe,
            .rules = {.vendors = {0x10de}, .classes = {vfio::PciClass::vga, vfio::PciClass::display_3d}},
            .node = "node-a",
            .pause = [](auto) {},
            .management = with_library ? &management : nullptr};
  }
  vgpu::GpuOutcome apply(const vgpu::Profile& profile) {
    steps.clear();
    return must(vgpu::apply_profile(host(), profile,
                                    [this](const vgpu::VgpuStep& step, const Result<>& done) {
                                      steps.push_back(step.text() +
                                                      (done ? "" : ": " + done.error().message));
                                    }))
        .gpus.at(0);
  }
  void make(const char* vgpus, bool mixed = false) {
    vgpu::Profile profile = on("[0]", vgpus);
    profile.items.front().mixed_sizes = mixed;
    const vgpu::GpuOutcome made = apply(profile);
    if (made.error) throw std::logic_error(made.error->message);
    kernel.forget_changes();
  }
  /// Everything that may differ: mode, functions, instances, vGPUs.
  std::string state() {
    const mdev::ManagedGpu gpu = must(mig.read(at(kGpu)));
    std::string out = gpu.mig == mdev::GpuSwitch::on           ? "MIG"
                      : gpu.mixed_sizes == mdev::GpuSwitch::on ? "mixed"
                                                               : "equal";
    out += " " + std::to_string(kernel.vfs_of(kGpu).size());
    for (const std::string& instance : mig.instances(kGpu)) out += " " + instance;
    out += ":";
    for (const std::string& device : vendor.devices_on(kGpu)) out += " " + device;
    return out;
  }

  FakeKernel kernel;
  FakeVendorVfio vendor{kernel};
  FakeMig mig{kernel, vendor};
  TableProbe probe;
  mdev::CalledGpuManagement management{kernel};
  bool with_library = true;
  std::vector<std::string> steps;
};

}  // namespace ferry::test

// SPDX-License-Identifier: Apache-2.0
// A node whose GPUs make vGPUs by one framework. The board is the same for all frameworks, a T4, so that one
// profile can be asked of each.
#pragma once

#include <array>
#include <atomic>
#include <ostream>
#include <stdexcept>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "mdev/framework.h"
#include "tests/support/fake_vendor_vfio.h"
#include "tests/vgpu-dm/gpu_node.h"

namespace ferry::mdev {

/// Prints the name: an address would differ in each run.
inline void PrintTo(const Framework* framework, std::ostream* out) {
  *out << framework->name();
}

}  // namespace ferry::mdev

namespace ferry::test {

/// All frameworks that make vGPUs.
inline std::array<const mdev::Framework*, 3> frameworks() {
  return {&mdev::mediated_on_gpu(), &mdev::mediated_on_functions(), &mdev::vendor_vfio()};
}

/// A framework in the name of a test.
inline std::string name_of(const mdev::Framework* framework) {
  if (framework == &mdev::mediated_on_gpu()) return "MdevOnGpu";
  if (framework == &mdev::mediated_on_functions()) return "MdevOnFunctions";
  return "VendorVfio";
}

class KindNode {
 public:
  static constexpr const char* kGpu = "0000:05:00.0";
  static constexpr unsigned kVfs = 8;

  /// `functions` false: a GPU that makes vGPUs on virtual functions has none yet.
  explicit KindNode(const mdev::Framework* framework, unsigned gpus = 1, bool functions = true)
      : framework_(framework), functions_(functions) {
    kernel.add_driver({.name = "nvidia", .ids = {"10de:1eb8"}, .sriov = true});
    for (unsigned i = 0; i < gpus; ++i) add_gpu(gpu(i));
  }

  /// The address of the GPU with an index.
  static std::string gpu(unsigned index) { return fmt::format("0000:{:02x}:00.0", 5 + index); }
  /// A virtual function of the first GPU.
  std::string vf(unsigned number) const { return kernel.vfs_of(kGpu).at(number); }

  vgpu::VgpuHost host() {
    return {.host = kernel,
            .writer = kernel,
            .uses = probe,
            .rules = {.vendors = {0x10de}, .classes = {vfio::PciClass::vga, vfio::PciClass::display_3d}},
            .node = "node-a",
            .pause = [this](auto) { ++pauses; }};
  }
  vgpu::VgpuSnapshot snapshot() { return vgpu::look(host()).value(); }
  vgpu::VgpuOutcome apply(const vgpu::Profile& profile) {
    return vgpu::apply_profile(host(), profile).value();
  }
  void make(const vgpu::Profile& profile) {
    for (const vgpu::GpuOutcome& gpu : apply(profile).gpus) {
      if (gpu.error) throw std::logic_error(gpu.error->message);
    }
    kernel.forget_changes();
  }
  /// A vGPU that somebody else makes on a function; mediated ones get the UUID.
  void add_vgpu(const std::string& parent, const std::string& type_id, const std::string& uuid = kUuid) {
    if (framework_ == &mdev::vendor_vfio()) {
      vendor.set(parent, type_id.substr(type_id.find('-') + 1));
    } else {
      mdev.add_device(parent, type_id, uuid);
    }
  }
  /// "T4-4Q ID" of each vGPU of a GPU; the id is a UUID or a virtual function.
  std::vector<std::string> devices(const std::string& gpu = kGpu) const {
    return framework_ == &mdev::vendor_vfio() ? vendor.devices_on(gpu) : mdev.devices_on(gpu);
  }
  /// The writes, without what stands before the function.
  std::vector<std::string> writes() const {
    std::vector<std::string> out;
    for (std::string write : kernel.writes()) {
      const std::string head = "sys/bus/pci/devices/";
      out.push_back(write.erase(write.find(head), head.size()));
    }
    return out;
  }

  static constexpr const char* kUuid = "5b6c0f0e-3b1d-4f0e-9a57-2f6f5f1f7a10";

  FakeKernel kernel;
  FakeMdev mdev{kernel};
  FakeVendorVfio vendor{kernel};
  TableProbe probe;
  std::atomic<int> pauses = 0;

 private:
  void add_gpu(const std::string& address) {
    kernel.add_function({.address = address,
                         .ids = "10de:1eb8",
                         .subsystem_ids = "10de:12a2",
                         .class_code = 0x030200,
                         .group = static_cast<unsigned>(std::stoul(address.substr(5, 2), nullptr, 16)),
                         .driver = "nvidia",
                         .totalvfs = kVfs});
    if (framework_ == &mdev::mediated_on_gpu()) return mdev.add_parent(address);
    if (functions_) kernel.enable_vfs(address, kVfs);
    if (framework_ == &mdev::mediated_on_functions()) {
      mdev.add_vf_parents(address, t4_types());
    } else {
      vendor.add_gpu(address, t4_types());
    }
  }

  const mdev::Framework* framework_;
  bool functions_;
};

}  // namespace ferry::test

// SPDX-License-Identifier: Apache-2.0
// A host on files, with GPUs whose registers are those of a model.
#pragma once

#include <cstdint>
#include <string>

#include <fmt/format.h>

#include "hostfs/host_fs.h"
#include "hostfs/host_writer.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"
#include "tests/vfio/bar_model.h"
#include "tests/vfio/bridge_space.h"
#include "vfio/pci/pci_address.h"
#include "vfio/registers/chip.h"
#include "vfio/registers/registers.h"

namespace ferry::test {

inline constexpr const char* kGpu = "0000:17:00.0";
inline constexpr const char* kNext = "0000:3b:00.0";
inline constexpr std::uint16_t kH100 = 0x2330;
inline constexpr std::uint16_t kB200 = 0x2901;

inline vfio::PciAddress address(const std::string& text) {
  return must(vfio::PciAddress::parse(text));
}

// Config space with power management at 0x40, and on a Blackwell GPU the capabilities that show its firewall.
inline std::string gpu_config(std::uint16_t device) {
  std::string space(4096, '\0');
  put16(space, 0x00, vfio::kNvidia);
  put16(space, 0x02, device);
  put16(space, 0x06, 0x0010);
  space[0x34] = 0x40;
  space[0x40] = 0x01;
  put32(space, 0x100, 0x00000001U | (0x148U << 20U));
  put32(space, 0x148, 0x00000023U | (0x180U << 20U));
  put32(space, 0x14c, vfio::kNvidia);
  put32(space, 0x180, 0x0000000bU);
  put32(space, 0x184, 0x10001U);
  put32(space, 0x2b4, 0xcafe);
  return space;
}

struct Device {
  std::uint16_t vendor = vfio::kNvidia;
  std::uint16_t device = kH100;
  unsigned device_class = 0x030200;
  std::string driver = "vfio-pci";
  std::string control = "auto";
  std::string enable = "0";
  std::string config = gpu_config(kH100);
  std::uint64_t bar_bytes = vfio::kRegisterBytes;
};

/// A host on files: its functions with models of their registers, and a real writer.
class RegisterHost {
 public:
  RegisterHost() {
    tree_.file("proc/sys/kernel/random/boot_id", "boot-1\n");
    tree_.directory("run/ferry/hostd");
  }
  static std::string path(const std::string& gpu, const std::string& name) {
    return "sys/bus/pci/devices/" + gpu + "/" + name;
  }
  void add(const std::string& gpu, const Device& device = {}) {
    tree_.file(path(gpu, "vendor"), fmt::format("{:#06x}\n", device.vendor));
    tree_.file(path(gpu, "device"), fmt::format("{:#06x}\n", device.device));
    tree_.file(path(gpu, "class"), fmt::format("{:#08x}\n", device.device_class));
    tree_.file(path(gpu, "config"), device.config);
    tree_.file(path(gpu, "enable"), device.enable + "\n");
    tree_.file(path(gpu, "power/control"), device.control + "\n");
    tree_.file(path(gpu, "resource"), fmt::format("0x{:016x} 0x{:016x} 0x{:016x}\n", 0x90000000U,
                                                  0x90000000U + device.bar_bytes - 1, 0x40200U));
    if (!device.driver.empty()) tree_.link(path(gpu, "driver"), "../../drivers/" + device.driver);
    BarModel model(device.device == kH100 ? BarModel::Kind::gh100 : BarModel::Kind::gb100);
    save(gpu, model);
  }
  void save(const std::string& gpu, BarModel& model) {
    model.save((tree_.path() / path(gpu, "resource0")).string());
  }
  ScratchDirectory& tree() { return tree_; }
  HostFs& fs() { return fs_; }
  SpawningWriter& writer() { return writer_; }
  std::string text(const std::string& gpu, const std::string& name) {
    return fs_.read_attribute(path(gpu, name)).value_or("?");
  }
  unsigned command(const std::string& gpu) {
    return static_cast<unsigned char>(must(fs_.read_file(path(gpu, "config")))[4]);
  }

 private:
  ScratchDirectory tree_;
  HostFs fs_{tree_.path()};
  SpawningWriter writer_{fs_};
};

}  // namespace ferry::test

// SPDX-License-Identifier: Apache-2.0
// Hosts for the checks: one on which everything is as it should be, to be spoilt by each test.
#pragma once

#include <string>

#include "tests/support/fake_kernel.h"

namespace ferry::test {

inline constexpr const char* kGpu = "0000:65:00.0";
inline constexpr const char* kRelease = "6.1.0-42-amd64";

/// The file of the GPU on the bus's way to it.
inline std::string of_gpu(const std::string& attribute) {
  return "sys/devices/pci0000:00/" + std::string(kGpu) + "/" + attribute;
}

/// 64 bytes of config space: an endpoint with a 32-bit BAR 0 and 64-bit prefetchable BARs 1 and 3.
inline std::string gpu_config() {
  std::string config(64, '\0');
  config[0] = '\xde';
  config[1] = '\x10';
  config[0x14] = '\x0c';
  config[0x1c] = '\x0c';
  return config;
}

/// `resource` of that GPU, with all addresses given out.
inline constexpr const char* kResources =
    "0x00000000f6000000 0x00000000f6ffffff 0x0000000000040200\n"
    "0x0000004000000000 0x00000043ffffffff 0x000000000014220c\n"
    "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
    "0x0000004400000000 0x0000004401ffffff 0x000000000014220c\n"
    "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
    "0x000000000000e000 0x000000000000e07f 0x0000000000040101\n"
    "0x00000000f7000000 0x00000000f707ffff 0x0000000000046200\n";

/// A host with one GPU, alone in its group: every check passes.
inline void build_healthy(FakeKernel& kernel) {
  kernel.add_driver({.name = "nouveau", .ids = {"10de:2684"}});
  kernel.add_function({.address = kGpu, .group = 41, .driver = "nouveau", .numa_node = 0});
  kernel.file(of_gpu("config"), gpu_config());
  kernel.file(of_gpu("resource"), kResources);
  kernel.file(of_gpu("resource1_resize"), "0000000000007f00\n");
  kernel.file(of_gpu("rom"), "");
  kernel.file(of_gpu("reset_method"), "flr bus\n");
  kernel.file(of_gpu("reset"), "");
  kernel.file(of_gpu("power_state"), "D0\n");
  kernel.file(of_gpu("boot_vga"), "0\n");
  kernel.file(of_gpu("sriov_totalvfs"), "16\n");
  kernel.file(of_gpu("sriov_numvfs"), "0\n");
  kernel.file(of_gpu("current_link_speed"), "16.0 GT/s PCIe\n");
  kernel.file(of_gpu("max_link_speed"), "16.0 GT/s PCIe\n");
  kernel.file(of_gpu("current_link_width"), "16\n");
  kernel.file(of_gpu("max_link_width"), "16\n");

  kernel.file("proc/cpuinfo",
              "processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: fpu vmx\n\nprocessor\t: 1\n");
  kernel.file("proc/cmdline", "BOOT_IMAGE=/vmlinuz root=/dev/sda1 intel_iommu=on iommu=pt quiet\n");
  kernel.file("proc/interrupts",
              "            CPU0\n   1:          9  IR-IO-APIC    1-edge      i8042\nNMI:  0  Non-maskable\n");
  kernel.file("proc/iomem", "00001000-0009ffff : System RAM\n4000000000-4401ffffff : PCI Bus 0000:65\n");
  kernel.file("proc/sys/kernel/osrelease", std::string(kRelease) + "\n");
  kernel.file("sys/firmware/acpi/tables/DMAR", "");
  kernel.file("sys/firmware/acpi/tables/FACP", "");
  kernel.directory("sys/class/iommu/dmar0");
  kernel.file("sys/kernel/security/lockdown", "[none] integrity confidentiality\n");
  kernel.directory("sys/module/vfio");
  kernel.file("sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "N\n");
  kernel.file("sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts", "N\n");
  kernel.file("sys/devices/system/node/online", "0-1\n");
  kernel.directory("sys/class/graphics/fbcon");
  kernel.file("dev/vfio/vfio", "");
  const std::string modules = "lib/modules/" + std::string(kRelease);
  kernel.file(modules + "/modules.builtin", "kernel/fs/ext4/ext4.ko\n");
  kernel.file(
      modules + "/modules.dep",
      "kernel/drivers/vfio/vfio.ko:\nkernel/drivers/vfio/pci/vfio-pci.ko: kernel/drivers/vfio/vfio.ko\n");
  kernel.file(modules + "/kernel/drivers/vfio/pci/vfio-pci.ko", "");
  kernel.file("etc/modprobe.d/blacklist.conf", "# no toys\nblacklist pcspkr\n");
}

}  // namespace ferry::test

// SPDX-License-Identifier: Apache-2.0
#include "mdev/framework.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/scratch_directory.h"
#include "vgpu-dm/types/type_names.h"

// The file of kept names, read for a vGPU of type 1182.
void ferry::fuzz::one_input(std::string_view text) {
  static const test::ScratchDirectory tree;
  static HostFs host(tree.path());
  tree.file("proc/sys/kernel/random/boot_id", "b\n");
  tree.file("run/ferry/hostd/vgpu-type-names.json", text);
  mdev::VgpuGpu gpu;
  gpu.function.address = {.domain = 0, .bus = 0x17, .device = 0, .function = 0};
  gpu.function.vendor = 0x10de;
  gpu.function.device = 0x26b9;
  gpu.framework = &mdev::vendor_vfio();
  mdev::VgpuDevice device;
  device.type_id = device.type_name = device.short_name = "1182";
  gpu.devices.push_back(device);
  vgpu::name_by_memory(host, {&gpu, 1});
  const mdev::VgpuDevice& named = gpu.devices.front();
  require(named.type_id == "1182", "a number stays what it is");
  require(named.type_name.ends_with(named.short_name), "the short name ends the name");
}

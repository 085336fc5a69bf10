// SPDX-License-Identifier: Apache-2.0
// Hosts of public bug reports, each described by a file of tests/fixtures/cases/hosts.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/scratch_directory.h"

namespace ferry::test {

/// The tree of one host (sys, proc, dev, etc, lib), which shows its state and does not react to writes.
///
/// A description has one thing a line; a line that begins with '#' is a comment:
///   cpu intel|amd|arm                  the processor's maker
///   iommu off                          the host has no active IOMMU, and no groups
///   cmdline WORDS                      the kernel's command line
///   release R                          the kernel's release
///   noacpi                             a device tree describes the host, and no ACPI table
///   vgpuhost                           driver nvidia is a vGPU host driver
///   driver NAME [vfio] [module=M]      a loaded driver; the drivers of the functions need no such line
///   fn ADDRESS CLASS VENDOR:DEVICE [KEY=VALUE...]
///       group= drv= sub=VENDOR:DEVICE numa= rev= reset= power= override= boot_vga= totalvfs= consumers=A,B
///       up=ADDRESS (bridge above) pf=ADDRESS (physical function) port=root|up|down dead=1 (off the bus)
///   mdev ADDRESS TYPE MIB MAX AVAILABLE NAME...       a type of mediated devices that the function offers
///   ctype ADDRESS ID NAME...           a type that the virtual functions of a GPU can create (vendor VFIO)
///   vvf ADDRESS CURRENT                a virtual function of vendor-specific VFIO, and its current type
///   file PATH TEXT                     with \n and \x00 for those characters
///   dir PATH
///   link PATH TARGET                   both within the tree
/// For ADDRESS a line may have a range, "0000:42:00.2..06.1": it stands for a line for each function. A
/// number before ".." counts up from the first one, "group=100..".
class DescribedHost : public ScratchDirectory {
 public:
  /// `name` is the file's, without ".host". Throws where the description cannot be read.
  explicit DescribedHost(const std::string& name);
};

/// The names of all, in order.
std::vector<std::string> described_hosts();

/// A file of tests/fixtures/cases: "vgpu/p13-a10.yaml".
std::filesystem::path case_file(const std::string& name);

}  // namespace ferry::test

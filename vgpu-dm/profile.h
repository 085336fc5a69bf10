// SPDX-License-Identifier: Apache-2.0
// A vGPU profile: which GPUs of a node carry which vGPUs. Plain values; the file is read by profile_yaml.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/result.h"
#include "vfio/pci_address.h"
#include "vfio/pci_function.h"
#include "vgpu-dm/type_name.h"
#include "vgpu-dm/vgpu_params.h"

namespace ferry {

/// "0x26B910DE" or "0x26B910DE:0x185110DE": device and vendor ID, then the board's subsystem IDs.
struct DeviceFilter {
  std::uint16_t vendor = 0;
  std::uint16_t device = 0;
  std::optional<std::uint16_t> subsystem_vendor;  ///< both or neither
  std::optional<std::uint16_t> subsystem_device;

  /// Each part is a number below 2^32: decimal, 0x, 0o, 0b or 0 (octal), `_` between digits.
  /// Errc::invalid_config.
  static Result<DeviceFilter> parse(std::string_view text);
  /// A function without subsystem IDs counts as 0000:0000.
  bool matches(const PciFunction& function) const;
  /// "0x26B910DE:0x185110DE"
  std::string text() const;
  bool operator==(const DeviceFilter&) const = default;
};

/// So many vGPUs of a type on each GPU that the item matches.
struct VgpuCount {
  VgpuTypeName type;
  std::uint32_t count = 0;  ///< above 0
  std::string place;        ///< "profiles.yaml:12"
  /// Absent: as they are. Of policies only, as all that follows.
  std::optional<VgpuParams> params = {};
  /// Placement IDs, one for each vGPU: slots in the GPU's memory. Empty: the driver chooses.
  std::vector<std::uint32_t> placement = {};
};

struct ProfileItem {
  std::vector<DeviceFilter> filters;  ///< empty: any GPU; else one of them matches
  bool all_devices = false;
  std::vector<std::int64_t> indices;  ///< VgpuGpu::index; negative and too large ones match nothing
  std::vector<VgpuCount> vgpus;       ///< in order of the file; empty: no vGPU at all
  bool mixed_sizes = false;           ///< vGPUs of several framebuffer sizes on one GPU
  /// This GPU and no other, whatever number it has by now. Of policies only, as what follows.
  std::optional<PciAddress> only = {};
  /// It is to be given away whole: no vGPUs, and no virtual functions either.
  bool whole = false;
  std::string place;

  bool matches(const VgpuGpu& gpu) const;
};

struct Profile {
  std::string name;
  std::vector<ProfileItem> items;  ///< at least one. Where several match a GPU, the last one holds
  std::string place;

  /// The item that holds for a GPU; nullptr: none matches, and the GPU is left as it is.
  const ProfileItem* item_for(const VgpuGpu& gpu) const;
};

struct ProfileFile {
  std::string file;
  std::vector<Profile> profiles;      ///< in order of the file
  std::vector<std::string> warnings;  ///< what Reading::lenient has let pass: "file:line: key: what"

  std::vector<std::string> names() const;
};

}  // namespace ferry

// SPDX-License-Identifier: Apache-2.0
// A vGPU profile: the vGPUs of each GPU of a node. Plain values; profile_yaml.h reads the file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "vfio/pci/inventory.h"
#include "vfio/pci/pci_address.h"
#include "vfio/pci/pci_function.h"
#include "vgpu-dm/profile/vgpu_params.h"
#include "vgpu-dm/types/type_names.h"

namespace ferry::vgpu {

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
  bool matches(const vfio::PciFunction& function) const;
  /// "0x26B910DE:0x185110DE"
  std::string text() const;
  bool operator==(const DeviceFilter&) const = default;
};

/// Number of vGPUs of a type on each GPU that the item matches.
struct VgpuCount {
  VgpuTypeName type;
  std::uint32_t count = 0;  ///< above 0
  std::string place;        ///< "profiles.yaml:12"
  /// Absent: parameters stay as they are. Only policies set this and the next field.
  std::optional<VgpuParams> params = {};
  /// Placement IDs, one for each vGPU: slots in the GPU's memory. Empty: the driver chooses.
  std::vector<std::uint32_t> placement = {};
};

struct ProfileItem {
  std::vector<DeviceFilter> filters;  ///< empty: any GPU; else one must match
  bool all_devices = false;
  std::vector<std::int64_t> indices;  ///< VgpuGpu::index; negative and too large ones match nothing
  std::vector<VgpuCount> vgpus;       ///< in order of the file; empty: no vGPU at all
  bool mixed_sizes = false;           ///< vGPUs of several framebuffer sizes on one GPU
  /// Matches this GPU alone, whatever its index is by now. Only policies set this and `whole`.
  std::optional<vfio::PciAddress> only = {};
  /// The GPU goes to a VM whole: no vGPUs, and no virtual functions either.
  bool whole = false;
  std::string place;

  /// A GPU that counts only by name needs a filter or `only`.
  bool matches(const mdev::VgpuGpu& gpu) const;
  /// matches(), where other keys name the GPU.
  bool selects(const mdev::VgpuGpu& gpu) const;
};

struct Profile {
  std::string name;
  std::vector<ProfileItem> items;  ///< at least one; the last item that matches a GPU is in effect
  std::string place;

  /// The item in effect for a GPU; nullptr: none matches, and the GPU is left as it is.
  const ProfileItem* item_for(const mdev::VgpuGpu& gpu) const;
};

/// A host's rules for `profile`: GPUs of the vendors that its device filters have count too.
vfio::AcceleratorRules rules_for(const Profile& profile, vfio::AcceleratorRules rules);

struct ProfileFile {
  std::string file;
  std::vector<Profile> profiles;      ///< in order of the file
  std::vector<std::string> warnings;  ///< faults that Reading::lenient accepted: "file:line: key: fault"

  std::vector<std::string> names() const;
};

// Names by which a node's label chooses a configuration. A file may use any name, but a node can choose only
// a valid label value. ABI: the syntax of label values,
// https://kubernetes.io/docs/concepts/overview/working-with-objects/labels.

/// True for at most 63 letters, digits, `-`, `_` and `.`, the first and the last a letter or digit.
bool can_be_label(std::string_view name);
inline constexpr const char* kLabelNames =
    "at most 63 letters, digits, - _ and ., the first and the last a letter or a digit";

/// "p.yaml:4: 'two words' can be chosen by no node's label: at most 63 letters, ..."
std::string label_warning(std::string_view place, std::string_view name);

}  // namespace ferry::vgpu

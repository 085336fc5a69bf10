// SPDX-License-Identifier: Apache-2.0
// The files in /run/nvidia/validations for which pods of the gpu-operator wait: workload-type first, then
// vfio-pci-ready or vgpu-devices-ready. Its sandbox-validator writes the same ones, but never
// vgpu-devices-ready where vGPUs are no mdev devices.
//
// What a ready file holds nobody reads: ours hold a word of ours, and only those are removed.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/node_report.h"
#include "common/host_fs.h"

namespace ferry {

/// Relative to the host's root.
inline constexpr const char* kStatusFolder = "run/nvidia/validations";

struct StatusFile {
  std::string_view name;
  std::optional<std::string> content;  ///< absent: it shall not be there
  std::string why;
};

/// What the files shall be; none that is not in it is touched. Empty: all are left as they are. Where others
/// serve the node nothing is said to be ready by us.
std::vector<StatusFile> status_files(const NodeWish& wish, const HostSide& host);

struct StatusFileChange {
  std::string path;  ///< relative to the host's root
  bool removed = false;
  std::string why;
};

/// Makes them so, each whole or not at all; with `dry_run` only says what it would do. Twice changes nothing.
/// A ready file of another's making is good as it is, and not removed; neither is a workload-type with a word
/// that is none of the two for VMs.
Result<std::vector<StatusFileChange>> write_status_files(HostFs& host, const std::vector<StatusFile>& files,
                                                         bool dry_run = false);

}  // namespace ferry

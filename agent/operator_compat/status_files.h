// SPDX-License-Identifier: Apache-2.0
// The files in /run/nvidia/validations that pods of the gpu-operator wait for: first workload-type, then
// vfio-pci-ready or vgpu-devices-ready. The operator's sandbox-validator writes the same files, except
// vgpu-devices-ready if the vGPUs are not mdev devices.
//
// No consumer reads the content of a ready file. Ferry's files contain its own word, and only those are
// removed.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/node_report.h"
#include "hostfs/host_fs.h"

namespace ferry::agent {

/// Relative to the host's root.
inline constexpr const char* kStatusFolder = "run/nvidia/validations";

struct StatusFile {
  std::string_view name;
  std::optional<std::string> content;  ///< absent: the file must not exist
  std::string why;
};

/// The desired files; others are not touched. Empty: all stay as they are. If other programs serve the node,
/// Ferry reports nothing as ready.
std::vector<StatusFile> status_files(const DesiredState& desired_state, const HostSide& host);

struct StatusFileChange {
  std::string path;  ///< relative to the host's root
  bool removed = false;
  std::string why;
};

/// Writes or removes the files, each atomically; with `dry_run` only returns the changes. A second call
/// changes nothing. A ready file of another program counts, and is not removed; neither is a workload-type
/// with a word other than the two for VMs.
Result<std::vector<StatusFileChange>> write_status_files(HostFs& host, const std::vector<StatusFile>& files,
                                                         bool dry_run = false);

}  // namespace ferry::agent

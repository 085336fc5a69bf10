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
inline constexpr const char* kValidationsFolder = "run/nvidia/validations";

struct ValidationFile {
  std::string_view name;
  std::optional<std::string> content;  ///< absent: the file must not exist
  std::string why;
};

/// The desired files; others are not touched. Empty: all stay as they are. If other programs serve the node,
/// Ferry reports nothing as ready.
std::vector<ValidationFile> validation_files(const DesiredState& desired_state, const HostSide& host);

struct ValidationFileChange {
  std::string path;  ///< relative to the host's root
  bool removed = false;
  std::string why;
};

/// Writes or removes the files, each atomically; with `dry_run` only returns the changes. A second call
/// changes nothing. A ready file of another program counts, and is not removed; neither is a workload-type
/// with a word other than the two for VMs.
Result<std::vector<ValidationFileChange>> write_validation_files(HostFs& host,
                                                                 const std::vector<ValidationFile>& files,
                                                                 bool dry_run = false);

}  // namespace ferry::agent

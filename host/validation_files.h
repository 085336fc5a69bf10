// SPDX-License-Identifier: Apache-2.0
// The files in /run/nvidia/validations that pods of the gpu-operator wait for: first workload-type, then
// vfio-pci-ready or vgpu-devices-ready. The operator's sandbox-validator writes the same files, except
// vgpu-devices-ready if the vGPUs are not mdev devices.
//
// The operator's pods run scripts of that folder as root. So hostd writes there, and never the agent.
//
// No consumer reads the content of a ready file. Ferry's files contain its own word, and only those are
// removed.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "api/host_status.h"
#include "hostfs/host_fs.h"
#include "policy/policy.h"

namespace ferry::host {

/// Relative to the host's root.
inline constexpr const char* kWorkloadType = "run/nvidia/validations/workload-type";
inline constexpr const char* kVfioReady = "run/nvidia/validations/vfio-pci-ready";
inline constexpr const char* kVgpuReady = "run/nvidia/validations/vgpu-devices-ready";

class ValidationFiles {
 public:
  /// The host must outlive this.
  explicit ValidationFiles(HostFs& host) : host_(host) {}

  /// Writes or removes the files, each atomically; a second call changes nothing. A ready file of another
  /// program counts, and is not removed; neither is a workload-type with a word other than the two for VMs. A
  /// symbolic link is neither followed nor replaced. Logs each change, and an error once.
  ///
  /// `policy`: of the desired state; null: there is none, and workload-type stays.
  void keep(const api::HostStatus& status, const policy::Policy* policy);

 private:
  /// `content` null: the file must not exist.
  void keep(std::string_view path, const char* content);

  HostFs& host_;
  std::set<std::string> warned_;
};

}  // namespace ferry::host

// SPDX-License-Identifier: Apache-2.0
// Keeps VMs from opening mediated devices between the last use probe and the write that removes them. The
// write asks a VM to give its device up, and takes the device from a running VM.
//
// A group's node has one opener, who also blocks the node of the device itself (drivers/vfio/group.c). The
// removal waits only for open devices, so an open group node does not delay it. A vGPU of vendor-specific
// VFIO needs no fence: its driver refuses the removal while a VM has it.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>

#include "common/result.h"
#include "common/unique_fd.h"
#include "hostfs/host_fs.h"
#include "vgpu-dm/plan/plan.h"

namespace ferry::vgpu {

class RemovalFence {
 public:
  using Opener = std::function<Result<UniqueFd>(const std::filesystem::path& relative)>;

  /// `open` opens a node for reading and writing.
  explicit RemovalFence(Opener open) : open_(std::move(open)) {}
  explicit RemovalFence(const HostFs& host);

  /// Holds the nodes of all vGPUs that these steps remove, until open() or destruction. Errc::refused, with
  /// nothing held: a process has opened one of them since the use probe.
  Result<> close(const mdev::VgpuGpu& gpu, std::span<const VgpuStep> removals);
  /// True if a VM could still take the vGPU that this step removes: the kernel has no such node, or it cannot
  /// be opened here. Its users must then be probed right before its own removal.
  bool leaves_open(const VgpuStep& removal) const;
  void open() { held_.clear(); }

 private:
  Opener open_;
  std::map<std::string, UniqueFd> held_;  // keyed by VgpuId::text
};

}  // namespace ferry::vgpu

// SPDX-License-Identifier: Apache-2.0
// Inside this room: keeps VMs from mediated devices between the last look at their users and the write that
// removes them. That write asks a VM to give its device up, and takes it from a running one.
//
// The node of a group has one opener, who also keeps others from the node of the device itself
// (drivers/vfio/group.c); held over the removal it keeps nobody waiting, for that waits for open devices. A
// vGPU of vendor-specific VFIO needs none of this: its driver refuses while a VM has it.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>

#include "common/host_fs.h"
#include "common/result.h"
#include "common/unique_fd.h"
#include "vgpu-dm/plan.h"

namespace ferry {

class RemovalFence {
 public:
  using Opener = std::function<Result<UniqueFd>(const std::filesystem::path& relative)>;

  /// `open`: how a node is opened for reading and writing.
  explicit RemovalFence(Opener open) : open_(std::move(open)) {}
  explicit RemovalFence(const HostFs& host);

  /// Holds what these steps remove from a GPU until this goes. Errc::refused, with nothing held: somebody has
  /// opened one of them since its users were looked for.
  Result<> close(const VgpuGpu& gpu, std::span<const VgpuStep> removals);
  /// Whether a VM could still take what this step removes: the kernel has no such node, or it may not be
  /// opened here. Then users have to be looked for right before its own removal.
  bool leaves_open(const VgpuStep& removal) const;
  void open() { held_.clear(); }

 private:
  Opener open_;
  std::map<std::string, UniqueFd> held_;  // by VgpuId::text
};

}  // namespace ferry

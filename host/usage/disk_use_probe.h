// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>
#include <utility>

#include "common/result.h"
#include "hostfs/host_fs.h"
#include "vfio/use_probe.h"

namespace ferry::host {

/// Opens a block device exclusively (O_EXCL) and closes it at once. EBUSY: something in the kernel has
/// claimed the device. ENXIO and ENOMEDIUM: the device has no claim and cannot be opened for another reason.
using TryClaim = std::function<Result<>(const vfio::DeviceNode& node)>;

/// Opens the device in a child process, because an open may wait in a driver where no signal ends the wait.
/// The child is started with the first question. Needs the node in the host's /dev and permission to open it.
TryClaim claim_by_another_process(const HostFs& host);

/// Finds the users of the disks that hang on a device, for example at a GPU's USB port or in its group. It
/// looks for uses without a process: mounted file systems in every mount namespace, swap, loop devices and
/// NVMe targets. If it finds none for a disk, it asks the kernel for another claim: a volume, a RAID, a ZFS
/// pool, the second disk of a btrfs or a SCSI target. The report is blind if the host's mounts cannot be read
/// or the kernel cannot be asked; there are no errors.
/// ABI: proc(5), /proc/PID/mountinfo, /proc/swaps; open(2), O_EXCL on a block device; loop/backing_file of
/// sysfs; drivers/nvme/target/configfs.c.
class DiskUseProbe final : public vfio::UseProbe {
 public:
  /// `host` must outlive this.
  DiskUseProbe(const HostFs& host, TryClaim claim) : host_(&host), claim_(std::move(claim)) {}
  Result<vfio::UseReport> look(std::span<const vfio::UseQuestion> questions) override;

 private:
  void find_mounts(std::span<const vfio::UseQuestion> questions, vfio::UseReport& report) const;
  void find_swap(std::span<const vfio::UseQuestion> questions, vfio::UseReport& report) const;
  void find_lent(std::span<const vfio::UseQuestion> questions, vfio::UseReport& report) const;
  void find_claims(std::span<const vfio::UseQuestion> questions, vfio::UseReport& report) const;

  const HostFs* host_;
  TryClaim claim_;
};

}  // namespace ferry::host

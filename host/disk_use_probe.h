// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <utility>

#include "common/host_fs.h"
#include "vfio/use_probe.h"

namespace ferry {

/// Asks the kernel for a block device for one opener alone, and gives it back at once. EBUSY: the kernel has
/// it claimed; ENXIO and ENOMEDIUM: nobody has, and it cannot be opened for another reason.
using TryClaim = std::function<Result<>(const DeviceNode& node)>;

/// By a process of its own, since such an open may wait for a driver where no signal ends the wait; none is
/// started before the first question. Needs the node in the host's /dev, and leave to open it.
TryClaim claim_by_another_process(const HostFs& host);

/// Finds what keeps the disks behind a device (at a GPU's USB port, in its group) without any process: file
/// systems, those that only a container sees too, swap, loop devices and NVMe targets. Of a disk of which
/// none is known the kernel is asked whether something else has claimed it: a volume, a RAID, a ZFS pool, the
/// second disk of a btrfs, a SCSI target. Blind where the host's mounts cannot be read, or the kernel cannot
/// be asked. Never an error.
/// ABI: proc(5), /proc/PID/mountinfo, /proc/swaps; open(2), O_EXCL on a block device; loop/backing_file of
/// sysfs; drivers/nvme/target/configfs.c.
class DiskUseProbe final : public UseProbe {
 public:
  /// `host` must outlive this.
  DiskUseProbe(const HostFs& host, TryClaim claim) : host_(&host), claim_(std::move(claim)) {}
  Result<UseReport> look(std::span<const UseQuestion> questions) override;

 private:
  void find_mounts(std::span<const UseQuestion> questions, UseReport& report) const;
  void find_swap(std::span<const UseQuestion> questions, UseReport& report) const;
  void find_lent(std::span<const UseQuestion> questions, UseReport& report) const;
  void find_claims(std::span<const UseQuestion> questions, UseReport& report) const;

  const HostFs* host_;
  TryClaim claim_;
};

}  // namespace ferry

// SPDX-License-Identifier: Apache-2.0
// The lock by which NVIDIA's driver answers if a GPU may be unbound:
// proc/driver/nvidia/gpus/ADDRESS/unbindLock. ABI: kernel-open/nvidia/nv-procfs.c of NVIDIA's open module,
// 595.45. Writing 1 always succeeds, and the lock is held only if 1 is read back; the driver refuses it while
// a process has the GPU open. Writing 0 frees the lock. The file exists while the driver is bound.
#pragma once

#include "hostfs/host_fs.h"
#include "hostfs/host_writer.h"
#include "vfio/bind/fence.h"

namespace ferry::host {

class NvidiaUnbindLock final : public vfio::DriverLock {
 public:
  /// Both must outlive this.
  NvidiaUnbindLock(const HostFs& host, HostWriter& writer) : host_(&host), writer_(&writer) {}
  bool has(const vfio::PciAddress& device) const override;
  Result<> take(const vfio::PciAddress& device) override;
  Result<> release(const vfio::PciAddress& device) override;

 private:
  const HostFs* host_;
  HostWriter* writer_;
};

}  // namespace ferry::host

// SPDX-License-Identifier: Apache-2.0
// Switches nvidia-persistenced's use of single GPUs. The driver's own nvidia-smi asks the daemon over its
// socket. ABI: `nvidia-smi -i ADDRESS -pm 0|1`; run/nvidia-persistenced/socket (NVIDIA's driver README,
// "nvidia-persistenced").
#pragma once

#include <filesystem>
#include <memory>

#include "hostfs/host_fs.h"
#include "hostfs/host_writer.h"
#include "vfio/bind/fence.h"
#include "vfio/quiesce/release.h"

namespace ferry::host {

class NvidiaPersistence final : public vfio::PersistenceSwitch {
 public:
  /// `driver_root` is below the host's root and has usr/bin/nvidia-smi. All must outlive this object.
  NvidiaPersistence(const HostFs& host, HostWriter& writer, std::filesystem::path driver_root)
      : host_(&host), writer_(&writer), driver_root_(std::move(driver_root)) {}

  /// Errc::unreachable: no daemon listens that could close the GPU. Without a daemon, switching on does
  /// nothing, because nvidia-smi would then set the kernel's own persistence mode.
  Result<> set(const vfio::PciAddress& gpu, bool on) override;

 private:
  const HostFs* host_;
  HostWriter* writer_;
  std::filesystem::path driver_root_;
};

/// Uses the driver that is installed on the host, else the driver of a driver container (run/nvidia/driver).
/// nullptr: neither has nvidia-smi.
std::unique_ptr<vfio::PersistenceSwitch> nvidia_persistence(const HostFs& host, HostWriter& writer);

// The lock by which NVIDIA's driver answers if a GPU may be unbound:
// proc/driver/nvidia/gpus/ADDRESS/unbindLock. ABI: kernel-open/nvidia/nv-procfs.c of NVIDIA's open module,
// 595.45. Writing 1 always succeeds, and the lock is held only if 1 is read back; the driver refuses it while
// a process has the GPU open. Writing 0 frees the lock. The file exists while the driver is bound.

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

// SPDX-License-Identifier: Apache-2.0
// NVIDIA's driver and its daemon nvidia-persistenced, as a rebind asks them to let go of a GPU.
#pragma once

#include <chrono>

#include "hostfs/host_fs.h"
#include "hostfs/host_writer.h"
#include "vfio/bind/fence.h"
#include "vfio/quiesce/release.h"

namespace ferry::host {

/// The lock by which the driver answers if a GPU may be unbound: proc/driver/nvidia/gpus/ADDRESS/unbindLock.
/// ABI: kernel-open/nvidia/nv-procfs.c of NVIDIA's open module, 595.45. Writing 1 always succeeds, and the
/// lock is held only if 1 is read back; the driver refuses it while a process has the GPU open. Writing 0
/// frees the lock. The file exists while the driver is bound.
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

/// The time in which the daemon must close a GPU, which then may be reset by its driver.
constexpr std::chrono::seconds kPersistencePatience{20};

/// Asks nvidia-persistenced over its socket to close and open single GPUs. It is the host's daemon, or that
/// of a driver container, whose root directory the gpu-operator mounts at run/nvidia/driver. ABI: ONC RPC
/// (RFC 5531) on run/nvidia-persistenced/socket, program 35006, version 1, procedure 1: nvpd_rpc.x of
/// nvidia-persistenced. The daemon serves only user 0.
class NvidiaPersistence final : public vfio::PersistenceSwitch {
 public:
  /// `host` must outlive this object.
  explicit NvidiaPersistence(const HostFs& host, std::chrono::milliseconds patience = kPersistencePatience)
      : host_(host), patience_(patience) {}

  /// Errc::unreachable: no daemon listens that could close the GPU. Switching on does nothing then, since a
  /// daemon opens all GPUs when it starts. Errc::failed: it has refused, or not answered; after that it is
  /// not asked for a minute, since each GPU would wait for it. Other errors: it cannot be asked.
  Result<> set(const vfio::PciAddress& gpu, bool on) override;

 private:
  const HostFs& host_;
  std::chrono::milliseconds patience_;
  std::chrono::steady_clock::time_point silent_until_ = {};
};

/// True if the process, in a pod, is the nvidia-persistenced of the driver container, and listens.
bool closes_on_request(const HostFs& host, int pid);

}  // namespace ferry::host

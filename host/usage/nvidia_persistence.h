// SPDX-License-Identifier: Apache-2.0
// Asks nvidia-persistenced over its socket to close and open single GPUs. It is the host's daemon, or that of
// a driver container, whose root directory the gpu-operator mounts at run/nvidia/driver. ABI: ONC RPC (RFC
// 5531) on run/nvidia-persistenced/socket, program 35006, version 1, procedure 1: nvpd_rpc.x of
// nvidia-persistenced. The daemon serves only user 0.
#pragma once

#include <chrono>

#include "hostfs/host_fs.h"
#include "vfio/quiesce/release.h"

namespace ferry::host {

/// The time in which the daemon must close a GPU, which then may be reset by its driver.
constexpr std::chrono::seconds kPersistencePatience{20};

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

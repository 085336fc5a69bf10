// SPDX-License-Identifier: Apache-2.0
// nvidia-persistenced's hold on single GPUs, switched by the driver's own nvidia-smi, which asks the daemon
// over its socket. ABI: `nvidia-smi -i ADDRESS -pm 0|1`; run/nvidia-persistenced/socket (NVIDIA's driver
// README, "nvidia-persistenced").
#pragma once

#include <filesystem>
#include <memory>

#include "common/host_fs.h"
#include "common/host_writer.h"
#include "vfio/release.h"

namespace ferry {

class NvidiaPersistence final : public PersistenceSwitch {
 public:
  /// `driver_root` is below the host's root: where the driver's usr/bin/nvidia-smi is. All must outlive this.
  NvidiaPersistence(const HostFs& host, HostWriter& writer, std::filesystem::path driver_root)
      : host_(&host), writer_(&writer), driver_root_(std::move(driver_root)) {}

  /// Errc::unreachable: no daemon listens that could let go. Where none does, switching on is nothing to do:
  /// without it nvidia-smi would set the kernel's own mode, which nobody had asked for.
  Result<> set(const PciAddress& gpu, bool on) override;

 private:
  const HostFs* host_;
  HostWriter* writer_;
  std::filesystem::path driver_root_;
};

/// For the driver that is installed on the host, else for the one of a driver container (run/nvidia/driver).
/// nullptr: neither has an nvidia-smi.
std::unique_ptr<PersistenceSwitch> nvidia_persistence(const HostFs& host, HostWriter& writer);

}  // namespace ferry

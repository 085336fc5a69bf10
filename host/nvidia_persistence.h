// SPDX-License-Identifier: Apache-2.0
// Switches nvidia-persistenced's use of single GPUs. The driver's own nvidia-smi asks the daemon over its
// socket. ABI: `nvidia-smi -i ADDRESS -pm 0|1`; run/nvidia-persistenced/socket (NVIDIA's driver README,
// "nvidia-persistenced").
#pragma once

#include <filesystem>
#include <memory>

#include "common/host_fs.h"
#include "common/host_writer.h"
#include "vfio/release.h"

namespace ferry {

class NvidiaPersistence final : public PersistenceSwitch {
 public:
  /// `driver_root` is below the host's root and has usr/bin/nvidia-smi. All must outlive this object.
  NvidiaPersistence(const HostFs& host, HostWriter& writer, std::filesystem::path driver_root)
      : host_(&host), writer_(&writer), driver_root_(std::move(driver_root)) {}

  /// Errc::unreachable: no daemon listens that could close the GPU. Without a daemon, switching on does
  /// nothing, because nvidia-smi would then set the kernel's own persistence mode.
  Result<> set(const PciAddress& gpu, bool on) override;

 private:
  const HostFs* host_;
  HostWriter* writer_;
  std::filesystem::path driver_root_;
};

/// Uses the driver that is installed on the host, else the driver of a driver container (run/nvidia/driver).
/// nullptr: neither has nvidia-smi.
std::unique_ptr<PersistenceSwitch> nvidia_persistence(const HostFs& host, HostWriter& writer);

}  // namespace ferry

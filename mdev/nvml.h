// SPDX-License-Identifier: Apache-2.0
// NVIDIA's management library (NVML), loaded from the host for each call and closed right after. An open
// handle keeps the driver from granting its unbind lock, without which no virtual functions are enabled.
// Only the host writer's child uses this class; other code uses CalledGpuManagement.
// ABI: nvml.h, API version 13. Calls that work without a vGPU driver were tried with 580.159.04, except
// nvmlDeviceGetGpuInstancePossiblePlacements.
#pragma once

#include <filesystem>

#include "common/host_fs.h"
#include "mdev/gpu_management.h"

namespace ferry {

class Nvml final : public GpuManagement {
 public:
  /// Searches the library below the host's root, then below the driver container's (run/nvidia/driver).
  explicit Nvml(const HostFs& host) : host_(&host) {}
  Result<ManagedGpu> read(const PciAddress& gpu) override;
  Result<> make_instance(const PciAddress& gpu, std::uint32_t profile) override;
  Result<> remove_instance(const PciAddress& gpu, std::uint32_t instance) override;
  Result<> set_mixed_sizes(const PciAddress& gpu, bool on) override;
  Result<> set_mig(const PciAddress& gpu, bool on) override;

 private:
  const HostFs* host_;
};

}  // namespace ferry

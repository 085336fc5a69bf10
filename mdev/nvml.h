// SPDX-License-Identifier: Apache-2.0
// NVIDIA's management library, loaded from the host when it is asked and let go right after: an open handle
// keeps the driver from giving its unbind lock, and without it no virtual functions are enabled.
// For the child of the host writer; who wants to ask takes CalledGpuManagement.
// ABI: nvml.h, API version 13; the calls that read without a vGPU driver were tried with 580.159.04, save
// nvmlDeviceGetGpuInstancePossiblePlacements.
#pragma once

#include <filesystem>

#include "common/host_fs.h"
#include "mdev/gpu_management.h"

namespace ferry {

class Nvml final : public GpuManagement {
 public:
  /// The library is looked for below the host's root, then in a driver container's (run/nvidia/driver).
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

// SPDX-License-Identifier: Apache-2.0
// What sysfs does not say and cannot do: GPU instances (MIG) and GPUs that carry vGPUs of different sizes.
// The driver's own library does; it may be absent.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/result.h"
#include "vfio/pci_address.h"

namespace ferry {

/// A kind of slice of a GPU in MIG mode.
struct GpuInstanceProfile {
  std::uint32_t id = 0;      ///< of this GPU's profiles; not the same on another model
  std::string name;          ///< "2g.35gb", "1g.10gb+me", "1g.24gb+gfx"
  std::uint32_t most = 0;    ///< on an empty GPU
  std::uint32_t left = 0;    ///< how many more fit now
  std::uint32_t slices = 0;  ///< compute slices that it takes; 0: not told
  /// Memory slices that it takes, and those it may begin at; none: not told.
  std::uint32_t size = 0;
  std::vector<std::uint32_t> starts = {};
  bool operator==(const GpuInstanceProfile&) const = default;
};

/// A slice that there is.
struct GpuInstance {
  std::uint32_t id = 0;  ///< what a vGPU's `gpu_instance_id` says
  std::uint32_t profile = 0;
  std::optional<std::uint32_t> start = {};  ///< its first memory slice; absent: not told
  /// Somebody has made compute instances in it, for processes, other than the one that fills it: they would
  /// go with it, and are not ours to make again.
  bool divided = false;
  bool operator==(const GpuInstance&) const = default;
};

/// A vGPU type as the library knows it, whether or not one can be made now.
struct ManagedType {
  std::uint32_t id = 0;           ///< the number: 1153 of "nvidia-1153"
  std::string name;               ///< "NVIDIA L40S-12Q"
  std::uint64_t framebuffer = 0;  ///< bytes
  std::optional<std::uint32_t> instance_profile =
      {};  ///< the GPU instance that it needs; absent: time-sliced
  std::optional<std::uint32_t> most_per_gpu = {};
  std::optional<std::uint32_t> most_per_instance = {};  ///< absent: time-sliced
  bool operator==(const ManagedType&) const = default;
};

enum class GpuSwitch {
  unsupported,  ///< this GPU or driver has no such mode
  off,
  on,
};

struct ManagedGpu {
  bool vgpu_host = false;  ///< the loaded driver is one that makes vGPUs
  GpuSwitch mig = GpuSwitch::unsupported;
  GpuSwitch mig_pending = GpuSwitch::unsupported;  ///< what it is after the GPU's next reset
  /// Whether vGPUs of different sizes may be on the GPU. In MIG mode: unsupported, each instance has one
  /// size.
  GpuSwitch mixed_sizes = GpuSwitch::unsupported;
  std::vector<GpuInstanceProfile> profiles;  ///< in order of id; also with MIG mode off
  std::vector<GpuInstance> instances;        ///< in order of id
  std::vector<ManagedType> types;            ///< in order of id; none unless vgpu_host
  bool operator==(const ManagedGpu&) const = default;
};

class GpuManagement {
 public:
  GpuManagement() = default;
  GpuManagement(const GpuManagement&) = delete;
  GpuManagement& operator=(const GpuManagement&) = delete;
  GpuManagement(GpuManagement&&) = delete;
  GpuManagement& operator=(GpuManagement&&) = delete;
  virtual ~GpuManagement() = default;

  // Errors of all: Errc::unsupported, the host has no such library or the driver is not loaded;
  // Errc::not_found, the library does not know the GPU; Errc::refused, something uses it; Errc::failed, with
  // the library's words.

  virtual Result<ManagedGpu> read(const PciAddress& gpu) = 0;
  /// Makes a GPU instance with one compute instance that fills it, as vGPUs need it.
  virtual Result<> make_instance(const PciAddress& gpu, std::uint32_t profile) = 0;
  /// The compute instance that fills it goes with it. Errc::refused while a vGPU or a process is on it, or it
  /// is divided.
  virtual Result<> remove_instance(const PciAddress& gpu, std::uint32_t instance) = 0;
  /// Errc::refused while the GPU carries any vGPU.
  virtual Result<> set_mixed_sizes(const PciAddress& gpu, bool on) = 0;
  /// May only take effect with the GPU's next reset: ManagedGpu::mig_pending.
  virtual Result<> set_mig(const PciAddress& gpu, bool on) = 0;
};

}  // namespace ferry

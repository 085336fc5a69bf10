// SPDX-License-Identifier: Apache-2.0
// GPU facts and changes that sysfs lacks: GPU instances (MIG), and vGPUs of different sizes on one GPU.
// NVIDIA's management library has them; a host may lack it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/pinned.h"
#include "common/result.h"
#include "hostfs/host_fs.h"
#include "hostfs/host_writer.h"
#include "vfio/pci/pci_address.h"

namespace ferry::mdev {

/// A kind of GPU instance, as `nvidia-smi mig -lgip` lists it.
struct GpuInstanceProfile {
  std::uint32_t id = 0;      ///< a number on this GPU; another GPU model may use it for another profile
  std::string name;          ///< "2g.35gb", "1g.10gb+me", "1g.24gb+gfx"
  std::uint32_t most = 0;    ///< instances that an empty GPU fits
  std::uint32_t left = 0;    ///< instances that still fit
  std::uint32_t slices = 0;  ///< compute slices of an instance; 0: unknown
  /// Memory slices of an instance, and the slices at which it may begin; 0 and empty: unknown.
  std::uint32_t size = 0;
  std::vector<std::uint32_t> starts = {};
  bool operator==(const GpuInstanceProfile&) const = default;
};

struct GpuInstance {
  std::uint32_t id = 0;  ///< the number in a vGPU's `gpu_instance_id`
  std::uint32_t profile = 0;
  std::optional<std::uint32_t> start = {};  ///< its first memory slice; absent: unknown
  /// The instance has compute instances, for processes, other than the one that fills it. They would be lost
  /// with the instance, and Ferry cannot make them again.
  bool divided = false;
  bool operator==(const GpuInstance&) const = default;
};

/// A vGPU type that the library knows, even if none can be made now.
struct ManagedType {
  std::uint32_t id = 0;           ///< the number: 1153 of "nvidia-1153"
  std::string name;               ///< "NVIDIA L40S-12Q"
  std::uint64_t framebuffer = 0;  ///< bytes
  std::optional<std::uint32_t> instance_profile =
      {};  ///< the GPU instance that it needs; absent: time-sliced
  std::optional<std::uint32_t> most_per_gpu = {};
  std::optional<std::uint32_t> most_per_instance = {};  ///< absent: time-sliced
  /// Units of the GPU's memory that a vGPU takes while mixed sizes are on, and the units at which it may
  /// begin, ascending. Both are facts of the board, also while the mode is off. 0 and empty: unknown.
  std::uint32_t size = 0;
  std::vector<std::uint32_t> placements = {};
  bool operator==(const ManagedType&) const = default;
};

enum class GpuSwitch {
  unsupported,  ///< this GPU or driver lacks the mode
  off,
  on,
};

struct ManagedGpu {
  bool vgpu_host = false;  ///< the loaded driver makes vGPUs
  GpuSwitch mig = GpuSwitch::unsupported;
  GpuSwitch mig_pending = GpuSwitch::unsupported;  ///< the mode after the GPU's next reset
  /// vGPUs of different sizes on one GPU. Unsupported in MIG mode, where each instance has one size.
  GpuSwitch mixed_sizes = GpuSwitch::unsupported;
  std::vector<GpuInstanceProfile> profiles = {};  ///< in order of id; also with MIG mode off
  std::vector<GpuInstance> instances = {};        ///< in order of id
  std::vector<ManagedType> types = {};            ///< in order of id; none unless vgpu_host
  bool operator==(const ManagedGpu&) const = default;
};

class GpuManagement : Pinned {
 public:
  virtual ~GpuManagement() = default;

  // Errors of every call. Errc::unsupported: the host lacks the library, or the driver is not loaded.
  // Errc::not_found: the library does not know the GPU. Errc::refused: the GPU is in use. Errc::failed: with
  // the library's own message.

  virtual Result<ManagedGpu> read(const vfio::PciAddress& gpu) = 0;
  /// Makes a GPU instance with one compute instance that fills it, as vGPUs need it.
  virtual Result<> make_instance(const vfio::PciAddress& gpu, std::uint32_t profile) = 0;
  /// Removes a GPU instance and the compute instance that fills it. Errc::refused while a vGPU or a process
  /// uses it, or while GpuInstance::divided is set.
  virtual Result<> remove_instance(const vfio::PciAddress& gpu, std::uint32_t instance) = 0;
  /// Errc::refused while the GPU carries any vGPU.
  virtual Result<> set_mixed_sizes(const vfio::PciAddress& gpu, bool on) = 0;
  /// May take effect only at the GPU's next reset: ManagedGpu::mig_pending. Errc::refused: it will not.
  virtual Result<> set_mig(const vfio::PciAddress& gpu, bool on) = 0;
};

// NVIDIA's management library (NVML), loaded from the host for each call and closed right after. An open
// handle keeps the driver from granting its unbind lock, without which no virtual functions are enabled.
// Only the host writer's child uses this class; other code uses CalledGpuManagement.
// ABI: nvml.h, API version 13. Calls that work without a vGPU driver were tried with 580.159.04, except
// nvmlDeviceGetGpuInstancePossiblePlacements. nvmlDeviceGetVgpuTypeSupportedPlacements answers also while
// mixed sizes are off. Version 2 of its list asks for mixed sizes or one size; version 1 has mixed sizes.

class Nvml final : public GpuManagement {
 public:
  /// Searches the library below the host's root, then below the driver container's (run/nvidia/driver). The
  /// first one that can be used counts.
  explicit Nvml(const HostFs& host) : host_(&host) {}
  Result<ManagedGpu> read(const vfio::PciAddress& gpu) override;
  Result<> make_instance(const vfio::PciAddress& gpu, std::uint32_t profile) override;
  Result<> remove_instance(const vfio::PciAddress& gpu, std::uint32_t instance) override;
  Result<> set_mixed_sizes(const vfio::PciAddress& gpu, bool on) override;
  Result<> set_mig(const vfio::PciAddress& gpu, bool on) override;

 private:
  const HostFs* host_;
};

// NVML's calls, made in the host writer's child, so that a library that hangs or crashes does no harm here. A
// change that does not return is recorded like a stuck write, and its GPU is left alone.

/// The library's name in a LibraryCall.
inline constexpr std::string_view kGpuLibrary = "nvml";

class CalledGpuManagement final : public GpuManagement {
 public:
  explicit CalledGpuManagement(HostWriter& writer) : writer_(&writer) {}
  // Errors: those of GpuManagement and of HostWriter::call().
  Result<ManagedGpu> read(const vfio::PciAddress& gpu) override;
  Result<> make_instance(const vfio::PciAddress& gpu, std::uint32_t profile) override;
  Result<> remove_instance(const vfio::PciAddress& gpu, std::uint32_t instance) override;
  Result<> set_mixed_sizes(const vfio::PciAddress& gpu, bool on) override;
  Result<> set_mig(const vfio::PciAddress& gpu, bool on) override;

 private:
  HostWriter* writer_;
};

/// The child's end: performs a request on `management` and returns the answer. Both are JSON objects. Both
/// ends are one executable, so the format is no interface for other programs.
std::string answer_gpu_call(GpuManagement& management, std::string_view request);

/// answer_gpu_call() on the host's own NVML: the function that the host writer's child calls for kGpuLibrary.
std::string answer_nvml_call(const HostFs& host, std::string_view request);

}  // namespace ferry::mdev

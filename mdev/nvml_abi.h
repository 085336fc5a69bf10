// SPDX-License-Identifier: Apache-2.0
// The part of NVML's binary interface that Ferry calls, for mdev/ alone. It is declared here because no
// Debian package has the header. Names and layouts are those of nvml.h (API version 13).
#pragma once

#include <array>
#include <cstddef>

namespace ferry::mdev::nvml {

using Status = int;  // nvmlReturn_t
inline constexpr Status kSuccess = 0;
inline constexpr Status kInvalidArgument = 2;
inline constexpr Status kNotSupported = 3;
inline constexpr Status kNotFound = 6;
inline constexpr Status kInsufficientSize = 7;
inline constexpr Status kDriverNotLoaded = 9;
inline constexpr Status kInUse = 19;

struct DeviceHandle;           // nvmlDevice_t points to it
struct GpuInstanceHandle;      // nvmlGpuInstance_t
struct ComputeInstanceHandle;  // nvmlComputeInstance_t
using Device = DeviceHandle*;
using Instance = GpuInstanceHandle*;
using ComputeInstance = ComputeInstanceHandle*;

inline constexpr unsigned kModeHostVgpu = 3;  // NVML_GPU_VIRTUALIZATION_MODE_HOST_VGPU
inline constexpr unsigned kNoInstanceProfile = 0xffffffff;
inline constexpr unsigned kInstanceProfiles = 32;  // NVML_GPU_INSTANCE_PROFILE_COUNT, with room for new ones
inline constexpr unsigned kComputeProfiles = 16;   // NVML_COMPUTE_INSTANCE_PROFILE_COUNT, with room

/// The value of a versioned struct's first field: sizeof(struct) and its version.
template <typename T>
constexpr unsigned version_of(unsigned version) {
  return static_cast<unsigned>(sizeof(T)) | version << 24U;
}

struct GpuInstanceProfileInfo {  // nvmlGpuInstanceProfileInfo_v2_t
  unsigned version = 0;
  unsigned id = 0;
  unsigned is_p2p_supported = 0;
  unsigned slice_count = 0;
  unsigned instance_count = 0;
  unsigned multiprocessor_count = 0;
  unsigned copy_engine_count = 0;
  unsigned decoder_count = 0;
  unsigned encoder_count = 0;
  unsigned jpeg_count = 0;
  unsigned ofa_count = 0;
  unsigned long long memory_size_mib = 0;
  std::array<char, 96> name = {};  // "MIG 2g.35gb"
};
static_assert(sizeof(GpuInstanceProfileInfo) == 152);

struct GpuInstancePlacement {  // nvmlGpuInstancePlacement_t
  unsigned start = 0;
  unsigned size = 0;
};
inline constexpr unsigned kInstancePlacements = 64;  // far more than the slices of any GPU

struct GpuInstanceInfo {  // nvmlGpuInstanceInfo_t
  Device device = nullptr;
  unsigned id = 0;
  unsigned profile_id = 0;
  unsigned placement_start = 0;
  unsigned placement_size = 0;
};

struct ComputeInstanceProfileInfo {  // nvmlComputeInstanceProfileInfo_t
  unsigned id = 0;
  unsigned slice_count = 0;
  unsigned instance_count = 0;
  unsigned multiprocessor_count = 0;
  unsigned shared_copy_engine_count = 0;
  unsigned shared_decoder_count = 0;
  unsigned shared_encoder_count = 0;
  unsigned shared_jpeg_count = 0;
  unsigned shared_ofa_count = 0;
};

struct HeterogeneousMode {  // nvmlVgpuHeterogeneousMode_v1_t
  unsigned version = 0;
  unsigned mode = 0;
};

inline constexpr unsigned kMixedSizePlacements = 0;  // NVML_VGPU_PGPU_HETEROGENEOUS_MODE
inline constexpr unsigned kTypePlacements = 256;     // far more than the vGPUs of any GPU

// nvmlVgpuPlacementList_v2_t. Version 1 ends before `mode`, and has no other members.
struct VgpuPlacements {
  unsigned version = 0;
  unsigned size = 0;
  unsigned count = 0;
  unsigned* ids = nullptr;
  unsigned mode = kMixedSizePlacements;
};
inline constexpr unsigned kOldPlacements = 24U | 1U << 24U;  // nvmlVgpuPlacementList_v1
static_assert(sizeof(VgpuPlacements) == 32);
static_assert(offsetof(VgpuPlacements, size) == 4 && offsetof(VgpuPlacements, count) == 8);
static_assert(offsetof(VgpuPlacements, ids) == 16 && offsetof(VgpuPlacements, mode) == 24);

struct MaxInstancesPerGpuInstance {  // nvmlVgpuTypeMaxInstance_v1_t
  unsigned version = 0;
  unsigned type_id = 0;
  unsigned most = 0;
};

}  // namespace ferry::mdev::nvml

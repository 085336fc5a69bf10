// SPDX-License-Identifier: Apache-2.0
// Remembers a driver's names for the types of vendor-specific VFIO. The driver lists only types that can be
// made now, so a full GPU lists none; the table lacks some types and some releases' numbers. Names from a
// GPU's own lists and from the driver's library are kept until the reboot in
// run/ferry/hostd/vgpu-type-names.json.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "common/result.h"
#include "hostfs/host_fs.h"
#include "mdev/gpu_management.h"
#include "mdev/vgpu.h"

namespace ferry::vgpu {

// Names of vGPU types as profiles write them.

/// "L40S-12Q", "RTX6000-Ada-24Q" (time-sliced) or "H100-1-10CME" (MIG-backed); case matters. Or "1002:75b3",
/// the IDs of a virtual function that a VM gets whole: then it has nothing but `board`.
struct VgpuTypeName {
  std::string board;
  std::optional<std::uint32_t> slices;  ///< 1..9; only in a MIG-backed name
  std::uint32_t size_gib = 0;           ///< nominal; 0 stands for 512 MiB
  char series = 'Q';                    ///< A, B, C or Q; of a driver's name perhaps 0: it has none
  /// "ME", "NOME", "MEALL", "GFX" or nothing; only in a MIG-backed name. ME (media engines) is part of the
  /// driver's own name. The others only choose the GPU instance; no driver ends a name in them.
  std::string attribute = {};

  /// Errc::invalid_config describes a valid name.
  static Result<VgpuTypeName> parse(std::string_view text);
  /// Reads a short name that a driver gives, also one that no profile can write: "T4-2B4", "DC-2-48". Absent:
  /// it tells no size ("3060").
  static std::optional<VgpuTypeName> of_driver(std::string_view short_name);

  bool is_mig_backed() const { return slices.has_value(); }
  bool is_whole_function() const { return board.find(':') != std::string::npos; }
  /// About the memory of each vGPU. Where a driver tells it, too, the two agree for every time-sliced type.
  std::uint32_t size_mib() const { return size_gib == 0 ? 512 : size_gib * 1024; }
  std::string text() const;
  /// The driver's short name for it: without NOME, MEALL and GFX.
  std::string driver_short_name() const;
  bool operator==(const VgpuTypeName&) const = default;
};

/// True if the type needs a GPU instance, as its name or the table tells ("H100-1-10C", "DC-2-48").
bool is_mig_backed(const mdev::VgpuType& type);
bool is_mig_backed(const mdev::VgpuDevice& device);  ///< by the name of its type alone

/// The listed type with exactly this short name, else the type without NOME, MEALL or GFX. nullptr: none.
/// Errc::unsupported: two types have that short name.
Result<const mdev::VgpuType*> find_type(const VgpuTypeName& name, std::span<const mdev::VgpuType> types);

/// Names vGPUs that have only a type number, from earlier lists of the same GPU. An unreadable file names
/// none.
void name_by_memory(const HostFs& host, std::span<mdev::VgpuGpu> gpus);

/// True if a vGPU has a type that the driver does not list now and that is not remembered: its name is the
/// table's, or missing.
bool driver_lists_no_name(const HostFs& host, const mdev::VgpuGpu& gpu);
/// Names of types by their numbers.
using TypeNames = std::map<std::string, std::string>;

/// Names such vGPUs by the library's name for the type, which has priority over the table's. Returns these
/// names; a type that the library does not know, or for which it has no name, is not among them.
TypeNames name_by_library(const HostFs& host, const mdev::ManagedGpu& said, mdev::VgpuGpu& gpu);

/// Remembers newly listed types, and those in `named`, which name_by_library() returned. Writes only if there
/// is news, and nothing if the boot's id cannot be read. Safe for several threads of one process; the node's
/// file lock keeps other processes out.
Result<> remember_names(HostFs& host, std::span<const mdev::VgpuGpu> gpus,
                        const std::map<vfio::PciAddress, TypeNames>& named = {});

}  // namespace ferry::vgpu

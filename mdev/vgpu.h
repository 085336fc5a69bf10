// SPDX-License-Identifier: Apache-2.0
// vGPUs as the host shows them, whichever of the kernel's frameworks makes them: plain values.
//
// A GPU (a physical function) has parents, the functions on which vGPUs are created: the GPU itself, or its
// virtual functions. A parent offers types; a vGPU is an instance of a type on a parent.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "vfio/pci_address.h"
#include "vfio/pci_function.h"
#include "vfio/use_probe.h"

namespace ferry {

/// How vGPUs come to exist on a GPU. Decided per GPU from sysfs, never from its generation.
enum class VgpuFramework {
  none,         ///< none now; VgpuGpu::obstacle says why
  mdev_on_pf,   ///< mediated devices on the GPU itself, many of them
  mdev_on_vf,   ///< mediated devices on its virtual functions, one on each
  vendor_vfio,  ///< the driver's own attributes on each virtual function, without mdev
};
/// "mdev on the GPU", "vendor-specific VFIO"
std::string_view text(VgpuFramework framework);

/// What a vGPU is called on its host, and the key under which its use is asked and reported: the UUID of a
/// mediated device in lower case. (A vGPU of vendor-specific VFIO has no UUID: its virtual function's
/// address.)
struct VgpuId {
  std::string text;
  auto operator<=>(const VgpuId&) const = default;
};

/// The kernel's form of a UUID, 8-4-4-4-12 hex digits of either case, no braces. Errc::usage otherwise.
Result<VgpuId> parse_mdev_uuid(std::string_view text);

/// A type as one parent offers it.
struct VgpuType {
  /// What is written, or written to: the directory's name ("nvidia-230"), or of vendor-specific VFIO the bare
  /// number ("1153").
  std::string id;
  std::string name;        ///< as the driver gives it: "GRID T4-1Q"; the id where there is none
  std::string short_name;  ///< the last word of the name: "T4-1Q"
  /// How many more can be created on this parent now: on a virtual function 1 or 0.
  std::uint32_t available = 0;
  std::optional<std::uint32_t> max_instances;    ///< on an empty GPU; absent: the driver does not say
  std::optional<std::uint32_t> framebuffer_mib;  ///< of each vGPU; absent: the driver does not say
  bool framebuffer_by_name = false;  ///< not the driver's word: the number in the name, about right
  std::string device_api;            ///< "vfio-pci"; empty: the driver does not say
};

/// A function that vGPUs can be created on.
struct VgpuParent {
  PciAddress address;
  /// In order of their numbers. With vendor-specific VFIO only those that can be created now: none on a
  /// function that carries a vGPU, or of a GPU that is full.
  std::vector<VgpuType> types;
  std::optional<Error> problem;  ///< set: its types could not be read, and nothing is created on it
};

/// A vGPU that exists.
struct VgpuDevice {
  VgpuId id;
  PciAddress parent;
  std::string type_id;
  std::string type_name;                     ///< as VgpuType::name; the id where nothing says it
  std::string short_name;                    ///< as VgpuType::short_name
  std::optional<std::uint32_t> iommu_group;  ///< absent: no driver has taken it, no VM can be given it
  std::optional<std::string> driver;         ///< absent: none bound
  std::optional<std::uint32_t>
      gpu_instance;               ///< of a MIG-backed one, that it is on; absent also where not told
  std::vector<DeviceNode> nodes;  ///< through which a VM holds it
  /// The text of its plug-in's parameters, "frame_rate_limiter=0"; empty: none. Absent: its driver has none.
  std::optional<std::string> params = {};
  /// Its place in the GPU's memory, as the driver counts them. Absent: the driver tells none, as of GPUs
  /// before Ada while all their vGPUs have one size.
  std::optional<std::uint32_t> placement = {};
  /// Of a captured host (captured_vgpus.h): the number by which Ferry gave it its UUID there.
  std::optional<unsigned> captured_number = {};
};

/// How much of a vGPU is read.
enum class VgpuFacts {
  all,
  /// What it is, where, and whether a driver has taken it: enough to see whether a write held.
  identity,
};

/// One GPU with all that concerns vGPUs.
struct VgpuGpu {
  /// What `devices: [n]` of a profile counts: display functions of the accelerators' vendors, without
  /// virtual functions, in order of their addresses, from 0, whatever driver they are on.
  unsigned index = 0;
  /// A function that counts only because a command or a policy names it. It has a number behind all others,
  /// and no `devices:` of a file means it.
  bool by_name = false;
  PciFunction function;
  std::vector<PciAddress> functions;       ///< its virtual functions, whatever driver they are on; in order
  std::vector<PciAddress> functions_away;  ///< those on vfio drivers, given away themselves
  VgpuFramework framework = VgpuFramework::none;
  /// Whether the loaded driver is seen to be one that makes vGPUs: it offers types, or has what no ordinary
  /// one has. That a board could have virtual functions says nothing of it.
  bool host_driver = false;
  /// A board that is known to have no virtual functions, although it may have the files for them, as a T4
  /// has: AcceleratorRules.
  bool never_has_functions = false;
  /// Why no vGPU can be created here now, as a clause ("bound to vfio-pci: given away whole"). Empty: it
  /// can, as far as types are available.
  std::string obstacle;
  /// In order of address, which for virtual functions is that of their numbers: SR-IOV counts routing IDs up.
  std::vector<VgpuParent> parents;
  /// Types that its board is known to have and that no parent lists now, since what it carries hides them:
  /// from a table, so that the id may be empty, and is the driver's to say before it is written.
  std::vector<VgpuType> unlisted;
  std::vector<VgpuDevice> devices;  ///< in order of parent, then id

  const PciAddress& address() const { return function.address; }
  /// Whether its vGPUs go on virtual functions, one on each.
  bool on_virtual_functions() const {
    return framework == VgpuFramework::mdev_on_vf || framework == VgpuFramework::vendor_vfio;
  }
  /// Whether virtual functions could be switched on here: it has none, carries and offers nothing, and its
  /// driver makes vGPUs. (Of boards that the rules do not know, one with the files may make none all the
  /// same.)
  bool may_get_virtual_functions() const;
  /// Whether its types may be listed yet: its driver makes vGPUs, its board makes them itself, and none is
  /// listed. nvidia-vgpud does that once it has started.
  bool awaits_types() const;
  /// True if a vGPU host driver has the GPU, with virtual functions if the board can have them, and offers no
  /// type.
  bool offers_nothing() const;
  /// "GPU 1 (0000:65:00.0)"
  std::string label() const;
};

/// The reason that is left for a GPU that offers_nothing() where all other checks pass, and how to see it.
std::string reason_for_no_types(const VgpuGpu& gpu);

/// Each type that a GPU's parents list, once, in order of their numbers. `available` is how many more can be
/// made on the whole GPU: each free virtual function says that it could carry one, however many of them the
/// GPU has memory for.
std::vector<VgpuType> types_of(const VgpuGpu& gpu);

struct VgpuInventory {
  std::vector<VgpuGpu> gpus;  ///< in order of index
  /// What was seen and belongs to no GPU here: parents that are no PCI functions, other vendors' devices.
  std::vector<std::string> notes;

  const VgpuGpu* find(const PciAddress& address) const;
  const VgpuDevice* find(const VgpuId& id) const;
};

}  // namespace ferry

// SPDX-License-Identifier: Apache-2.0
// Plain values for the vGPUs of a host, independent of the kernel framework that makes them.
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
#include "vfio/pci/pci_address.h"
#include "vfio/pci/pci_function.h"
#include "vfio/use_probe.h"

namespace ferry::mdev {

class Framework;  // framework.h

/// The framework of a GPU that makes no vGPUs now. It treats mediated devices that the GPU may still have.
const Framework& no_framework();

/// A vGPU's name on its host, and the key of its device users. A mediated device has its UUID in lower case.
/// Another vGPU has no UUID, so the address of its virtual function is used.
struct VgpuId {
  std::string text;
  auto operator<=>(const VgpuId&) const = default;
};

/// Parses the kernel's form of a UUID (8-4-4-4-12 hex digits of either case, no braces). Else Errc::usage.
Result<VgpuId> parse_mdev_uuid(std::string_view text);

struct VgpuType {
  /// The name in sysfs: the directory ("nvidia-230"), or for vendor-specific VFIO the bare number ("1153").
  /// Of a whole virtual function: its IDs ("1002:75b3").
  std::string id;
  std::string name;        ///< the driver's name, "GRID T4-1Q"; the id if the driver gives none
  std::string short_name;  ///< the last word of the name: "T4-1Q"
  /// vGPUs that this parent can still create: 1 or 0 on a virtual function.
  std::uint32_t available = 0;
  bool fewer_may_fit = false;  ///< `available` is a bound: nothing tells how much memory is left
  /// On an empty GPU with one size only; of a MIG-backed type on all its GPU instances together. Absent: not
  /// known.
  std::optional<std::uint32_t> max_instances = {};
  std::optional<std::uint32_t> framebuffer_mib = {};  ///< of each vGPU; absent: not known
  bool framebuffer_by_name = false;  ///< read from the name, not from the driver, and approximate
  /// The GPU instance that a MIG-backed type needs, "2g.48gb+gfx". Empty: time-sliced, or not known.
  std::string mig_profile = {};
  std::optional<std::uint32_t> max_per_instance = {};  ///< on one such instance; absent: not known
};

struct VgpuParent {
  vfio::PciAddress address;
  /// They are in order of their numbers. With vendor-specific VFIO only types that can be created now: none
  /// on a function with a vGPU, or on a full GPU.
  std::vector<VgpuType> types = {};
  std::optional<Error> problem = {};  ///< set: its types could not be read, so nothing is created on it

  /// nullptr: no such type is listed.
  const VgpuType* find(std::string_view type_id) const;
  /// VgpuType::available of the type; 0 if it is not listed.
  std::uint32_t available(std::string_view type_id) const;
};

struct VgpuDevice {
  VgpuId id;
  vfio::PciAddress parent;
  std::string type_id;
  std::string type_name;                     ///< as VgpuType::name; the id if its type is not listed
  std::string short_name;                    ///< as VgpuType::short_name
  std::optional<std::uint32_t> iommu_group;  ///< absent: no driver is bound, so no VM can use it
  std::optional<std::string> driver;         ///< absent: no driver is bound
  std::optional<std::uint32_t>
      gpu_instance;  ///< number of the GPU instance of a MIG-backed vGPU; absent also if unknown
  std::vector<vfio::DeviceNode> nodes;  ///< the nodes that a VM opens
  /// Its plug-in parameters, "frame_rate_limiter=0"; empty: none set. Absent: its driver has none.
  std::optional<std::string> params = {};
  /// Its placement in the GPU's memory, in the driver's unit. Absent: the driver reports none, as on GPUs
  /// before Ada while all their vGPUs have one size.
  std::optional<std::uint32_t> placement = {};
  /// Set on a captured host only (vgpu_inventory.h): the number from which Ferry derived the vGPU's UUID.
  std::optional<unsigned> captured_number = {};

  /// True for a mediated device. Else it is its parent, a virtual function.
  bool is_mediated() const { return id.text != parent.text(); }
  /// True if only the number of its type is known.
  bool is_nameless() const { return type_name == type_id; }
};

/// The amount of facts that is read of a vGPU.
enum class VgpuFacts {
  all,
  /// ID, type, parent and IOMMU group: enough to verify a write.
  identity,
};

struct VgpuGpu {
  /// The number that `devices: [n]` of a profile selects: it counts display functions of the accelerators'
  /// vendors from 0, in order of address, on any driver. Virtual functions are not counted.
  unsigned index = 0;
  /// True if the function counts only because a command or a policy names it. Its index follows all others,
  /// and no `devices:` of a file selects it.
  bool by_name = false;
  vfio::PciFunction function;
  std::vector<vfio::PciAddress>
      functions;  ///< its virtual functions, whatever their driver, in order of address
  std::vector<vfio::PciAddress> functions_away;  ///< virtual functions on VFIO drivers, for passthrough
  /// The framework that makes its vGPUs, read from sysfs and never guessed from the GPU's generation; never
  /// nullptr. If it makes none, `obstacle` has the reason.
  const Framework* framework = &no_framework();
  /// True if the loaded driver is known to make vGPUs: it offers types, or host_driver_sign() exists. SR-IOV
  /// support of the board is no such sign.
  bool host_driver = false;
  /// True for a board that is known to have no virtual functions, although sysfs may list some, as for a T4.
  bool never_has_functions = false;
  /// The reason, as a clause, why no vGPU can be created here now ("bound to vfio-pci for passthrough").
  /// Empty: vGPUs can be created as far as types are available.
  std::string obstacle;
  /// They are in order of address, which is also the order of virtual functions' numbers (SR-IOV counts
  /// upwards).
  std::vector<VgpuParent> parents;
  /// Types that the board is known to have but no parent lists now, because the GPU's vGPUs hide them, or
  /// because the GPU has no virtual functions. Those of a table may have an empty id, which must be read from
  /// the driver before it is written.
  std::vector<VgpuType> unlisted;
  /// read_autoprobe(); absent also if the GPU's framework leaves the setting alone.
  std::optional<bool> vf_autoprobe = {};
  bool vf_autoprobe_left_off = false;  ///< autoprobe_was_left_off(): the setting is to be on
  /// Only with a framework that binds_functions(): a driver of the host has at least one of the functions.
  bool host_has_vfs = false;
  /// Only with such a framework: the driver has parameters for each function, in sriov_admin/.
  bool has_vf_params = false;
  std::vector<VgpuDevice> devices;  ///< in order of parent, then id

  const vfio::PciAddress& address() const { return function.address; }
  /// The problem of the first parent that has one, which may hide vGPUs; nullptr: none.
  const Error* problem() const;
  /// True if it makes vGPUs, and makes them on virtual functions, one on each.
  bool on_virtual_functions() const;
  /// True if it makes vGPUs, and makes them on itself.
  bool on_itself() const;
  /// True if virtual functions could be enabled here: the GPU has none, no vGPUs and no listed types, and its
  /// driver makes vGPUs. A board that the rules do not know may have SR-IOV files and still make no vGPUs.
  bool may_get_virtual_functions() const;
  /// True if nvidia-vgpud may still list the GPU's types after its start: the driver makes vGPUs, the board
  /// makes them without virtual functions, and no type is listed.
  bool awaits_types() const;
  /// True if a vGPU host driver has the GPU, with virtual functions if the board can have them, and offers no
  /// type, although the GPU carries no vGPU.
  bool offers_nothing() const;
  /// The GPU's name in messages: "GPU 1 (0000:65:00.0)".
  std::string label() const;
};

/// The last explanation for a GPU that offers_nothing() when all other checks pass, and how to confirm it.
std::string reason_for_no_types(const VgpuGpu& gpu);

struct VgpuInventory {
  std::vector<VgpuGpu> gpus;  ///< in order of index
  /// Entries that belong to no GPU here: parents that are no PCI functions, other vendors' devices.
  std::vector<std::string> notes;

  const VgpuGpu* find(const vfio::PciAddress& address) const;
  const VgpuDevice* find(const VgpuId& id) const;
};

/// VgpuType::short_name for the name that a driver gives.
inline std::string last_word(std::string_view name) {
  return std::string(name.substr(name.find_last_of(' ') + 1));  // npos + 1 is 0
}

}  // namespace ferry::mdev

// SPDX-License-Identifier: Apache-2.0
// A vGPU framework: the way in which a kernel and its driver make the vGPUs of a GPU. All differences between
// frameworks are facts, reads and writes of this interface. A new framework is one file that implements it,
// and its line in framework.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/pinned.h"
#include "common/result.h"
#include "hostfs/host_fs.h"
#include "hostfs/host_writer.h"
#include "mdev/mdev_bus.h"
#include "mdev/stuck_gpus.h"
#include "mdev/vgpu.h"
#include "mdev/virtual_functions.h"
#include "vfio/pci/inventory.h"

namespace ferry::mdev {

/// The facts that the scans of all GPUs of a host share.
struct HostScan {
  const HostFs& host;
  const vfio::Inventory& inventory;
  const StuckGpus& stuck;
  const MdevBus& bus;
};

/// A GPU's virtual functions, in order of address.
using VirtualFunctions = std::span<const vfio::PciFunction* const>;

/// The differences between frameworks that are mere facts.
struct FrameworkFacts {
  /// The name in messages and in JSON: "mdev on the GPU". Users see it, so it never changes.
  std::string_view name;
  /// Ferry makes and removes vGPUs by it, as a profile asks. False: no step of a plan asks for its writes,
  /// and its types are only read.
  bool makes_vgpus = true;
  /// vGPUs are made on the GPU's virtual functions, at most one on each. False: on the GPU itself, many of
  /// them, and the driver counts there how many can still be made on the whole GPU.
  bool on_virtual_functions = false;
  /// A vGPU is a mediated device on the kernel's mdev bus, which KubeVirt may remove. False: a VM gets the
  /// virtual function itself.
  bool has_mediated_devices = false;
  /// The maker of a vGPU chooses a UUID as its ID, which then shows whether Ferry made it. False: the address
  /// of its virtual function is its ID, and nothing shows who made it.
  bool has_uuids = false;
  /// A parent lists only types that can be created now. So a vGPU may have a type that the driver names
  /// nowhere, and a type may be listed once other vGPUs are removed. False: all types are always listed.
  bool lists_only_creatable_types = false;
  /// A vGPU is a virtual function on a vfio driver: vfio/ makes and removes it, whole IOMMU group at a time.
  bool binds_functions = false;
  /// NVIDIA's vGPU host driver makes the vGPUs.
  bool by_nvidias_driver = true;
  /// The kernel itself lists the vGPUs, also while the driver does not answer.
  bool kernel_lists_devices = true;
  /// The driver refuses to remove a vGPU that a VM uses (EPERM). False: the write may hang until the VM ends.
  bool refuses_removal_in_use = false;
  /// The reason, as a clause about the GPU, why no placement in its memory can be chosen for a vGPU. Empty:
  /// one can be, if the board allows it.
  std::string_view why_no_placement = {};
};

/// Frameworks are static objects, so two of them are equal if their addresses are.
class Framework : Pinned {
 public:
  explicit Framework(const FrameworkFacts& facts) : facts_(facts) {}
  virtual ~Framework() = default;

  // Questions: see FrameworkFacts.

  std::string_view name() const { return facts_.name; }
  bool makes_vgpus() const { return facts_.makes_vgpus; }
  bool on_virtual_functions() const { return facts_.on_virtual_functions; }
  bool has_mediated_devices() const { return facts_.has_mediated_devices; }
  bool has_uuids() const { return facts_.has_uuids; }
  bool lists_only_creatable_types() const { return facts_.lists_only_creatable_types; }
  bool binds_functions() const { return facts_.binds_functions; }
  bool by_nvidias_driver() const { return facts_.by_nvidias_driver; }
  bool kernel_lists_devices() const { return facts_.kernel_lists_devices; }
  bool refuses_removal_in_use() const { return facts_.refuses_removal_in_use; }
  std::string_view why_no_placement() const { return facts_.why_no_placement; }

  /// Checks parameters before a GPU changes for them. By default all pass, since the driver judges them.
  /// Errors: Errc::unsupported if no vGPU of the GPU can have them, with a parameter that is not known, or a
  /// value that would read back otherwise.
  virtual Result<> check_params(const VgpuGpu& /*gpu*/, std::string_view /*params*/) const { return {}; }

  // Reads.

  /// True if the GPU makes vGPUs by this framework now: by default if the GPU, or a virtual function of it,
  /// is a parent.
  virtual bool is_on(const HostScan& scan, const vfio::PciAddress& gpu, VirtualFunctions functions) const;
  /// True if the driver alone shows that the GPU makes vGPUs by this framework, whatever its vendor is.
  virtual bool is_shown_by_driver(const vfio::PciFunction& /*gpu*/) const { return false; }
  /// True if vGPUs can be made on `function` by this framework.
  virtual bool is_parent(const HostScan& scan, const vfio::PciAddress& function) const = 0;
  /// Adds a GPU's parents to `gpu`, and those of its vGPUs that the mdev bus does not list. A part that
  /// cannot be read becomes its parent's problem; while a write to the GPU is stuck, no attribute of its
  /// driver is read.
  virtual void read_gpu(const HostScan& scan, VirtualFunctions functions, VgpuGpu& gpu) const = 0;
  /// Appends the vGPUs on the known parents of `gpu`, named by the types that these have.
  virtual void read_devices(const HostFs& host, const vfio::Inventory& inventory, VgpuFacts facts,
                            VgpuGpu& gpu) const = 0;
  /// True if a known vGPU still exists, also if all else about it cannot be read.
  virtual bool exists(const HostFs& host, const VgpuDevice& device) const = 0;
  /// The number of vGPUs of a type that a parent can create now. Creating one on a virtual function changes
  /// the number for all its siblings.
  virtual Result<std::uint32_t> available_now(const HostFs& host, const vfio::PciAddress& parent,
                                              const std::string& type_id) const = 0;

  // Writes. No step creates or removes a vGPU by a write if binds_functions(), or places one if
  // why_no_placement().

  /// Creates a vGPU. A mediated device: EINVAL if the type no longer fits, EEXIST if the UUID is in use on
  /// the host. Vendor-specific VFIO: EINVAL or EIO if the type no longer fits, EEXIST if the function has a
  /// vGPU by now, which the driver would replace.
  virtual AttributeWrite creation_write(const vfio::PciAddress& /*parent*/, const std::string& /*type_id*/,
                                        const VgpuId& /*id*/) const {
    return {};
  }
  /// Removes a vGPU; refuses_removal_in_use() answers what happens while a VM uses it.
  virtual AttributeWrite removal_write(const vfio::PciAddress& /*parent*/, const VgpuId& /*id*/) const {
    return {};
  }
  /// Replaces all parameters of a vGPU; a blank clears them. EPERM while a VM uses the vGPU. Errors:
  /// Errc::unsupported if the vGPU cannot have such parameters.
  virtual Result<std::vector<AttributeWrite>> params_writes(const HostFs& host,
                                                            const vfio::PciAddress& parent, const VgpuId& id,
                                                            const std::string& params) const = 0;
  /// Moves a vGPU within the GPU's memory. EINVAL: not free, or no placement of its type. ENXIO or ENOENT:
  /// the GPU offers no choice. EPERM: a VM uses the vGPU.
  virtual AttributeWrite placement_write(const vfio::PciAddress& /*parent*/, const VgpuId& /*id*/,
                                         std::uint32_t /*placement*/) const {
    return {};
  }
  /// Gives a GPU without virtual functions `number` of them: by default enable_vfs(), and its errors.
  /// `for_host`: drivers of the host may take them, also where vGPUs need functions without a driver.
  virtual Result<> enable_functions(const VfSwitch& on, const vfio::PciAddress& gpu, std::uint32_t number,
                                    bool for_host) const;
  /// Removes all virtual functions of a GPU, which must have no vGPU: by default disable_vfs().
  virtual Result<> disable_functions(const VfSwitch& on, const vfio::PciAddress& gpu) const;

 private:
  const FrameworkFacts facts_;
};

/// Mediated devices on the GPU itself, as GPUs without virtual functions have them.
const Framework& mediated_on_gpu();
/// Mediated devices on virtual functions, one on each.
const Framework& mediated_on_functions();
/// The driver's own attributes on each virtual function, without mdev (vendor_vfio.h).
const Framework& vendor_vfio();

/// Virtual functions that go to a VM whole, as other vendors' do.
const Framework& whole_functions();

/// The framework that makes a GPU's vGPUs now, or no_framework().
const Framework& framework_of(const HostScan& scan, const vfio::PciAddress& gpu, VirtualFunctions functions);

/// The rules that also count the accelerators of each vendor that has a GPU of is_shown_by_driver() here. For
/// commands that show vGPUs without a file that names the GPUs.
vfio::AcceleratorRules naming_vgpu_vendors(const vfio::Inventory& inventory, vfio::AcceleratorRules rules);

}  // namespace ferry::mdev

// SPDX-License-Identifier: Apache-2.0
// All use probes of a host together, and each source that reads the host's files alone.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/result.h"
#include "hostfs/host_fs.h"
#include "hostfs/host_writer.h"
#include "vfio/pci/inventory.h"
#include "vfio/use_probe.h"
#include "virt/virt_client.h"

namespace ferry::host {

// The device nodes of NVIDIA's drivers, which these drivers create without an entry in sysfs
// (nvidia_nodes.cpp).

/// Reads a file below the host's root. Its driver may block the read.
using ReadElsewhere = std::function<Result<std::string>(const std::filesystem::path& file)>;

/// Reads in a child process, with kReadDeadline as the limit. The child is started with the first question.
ReadElsewhere read_by_another_process(const HostFs& host);

/// Adds the nodes through which a process uses a GPU or an NVSwitch on a driver of NVIDIA's. The driver does
/// not say which node belongs to which switch. A user of one switch node therefore counts as a user of every
/// switch; the nodes appear as "/dev/nvidia-nvswitch*". Errors: the driver does not say which node is this
/// GPU's. The driver is not asked about a GPU that a stuck write concerns (stuck_writes.h).
Result<> add_nvidia_nodes(const HostFs& host, const ReadElsewhere& read, vfio::UseQuestion& question);

/// N of /dev/nvidiaN, from a file proc/driver/nvidia/gpus/ADDRESS/information: "Device Minor: \t 0". ABI:
/// NVIDIA's driver README, "/proc interface".
std::optional<std::uint32_t> device_minor(std::string_view information);

/// The major number of a character device driver, by its name in proc/devices. ABI: proc(5).
std::optional<std::uint32_t> character_major(std::string_view devices, std::string_view driver);

/// The kubelet's allocations; an empty list if there is no kubelet.
using ListPodDevices = std::function<Result<std::vector<vfio::PodDevice>>()>;

/// The meaning of a kubelet that exists and cannot be asked.
enum class KubeletSilence {
  noted,   ///< for binds: a broken kubelet starts no VMs, and running VMs are seen (docs/adr/0007)
  blinds,  ///< for vGPUs: a deleted vGPU cannot be put back for the pod that was allocated it
};

/// Finds device users as vfio::UseProbe::look() does.
using FindUsers = std::function<Result<vfio::UseReport>(std::span<const vfio::UseQuestion> questions)>;

/// Asks several sources and merges their reports. UseQuestion::attached are device users, too. A VM that an
/// earlier source found by its open device node is not listed again by a later one that found it by
/// configuration. An error of any source is an error. Device nodes that a driver creates without an entry in
/// sysfs are added to the questions here. If that driver does not name a device's node, the report is blind
/// to that device.
class CombinedUseProbe final : public vfio::UseProbe {
 public:
  /// `host` must outlive this.
  CombinedUseProbe(const HostFs& host, ReadElsewhere read, std::vector<FindUsers> sources)
      : host_(&host), read_(std::move(read)), sources_(std::move(sources)) {}
  Result<vfio::UseReport> look(std::span<const vfio::UseQuestion> asked) override;

 private:
  const HostFs* host_;
  ReadElsewhere read_;
  std::vector<FindUsers> sources_;
};

/// Every probe for this host: /proc, screens, nvidia_drm's console, modules, the NVLink fabric, libvirt, the
/// kubelet and Ferry's device plugin. `rules` say which classes are NVSwitches. `pods`
/// asks the kubelet. The plugin's allocations are read from its file. `host` must outlive the result.
std::unique_ptr<vfio::UseProbe> all_use_probes(const HostFs& host, const vfio::AcceleratorRules& rules,
                                               ListPodDevices pods,
                                               KubeletSilence silence = KubeletSilence::noted);

/// Adds to the report of `inner` the ResourceClaims that have a device by hostd's record
/// (claims/claim_record.h). The pod of a claim may not have opened the device yet. If the record is there and
/// cannot be read, the report is blind. Only commands of people use it, not hostd.
class ClaimUseProbe final : public vfio::UseProbe {
 public:
  /// Both must outlive this object.
  ClaimUseProbe(const HostFs& host, vfio::UseProbe& inner) : host_(&host), inner_(&inner) {}
  Result<vfio::UseReport> look(std::span<const vfio::UseQuestion> questions) override;

 private:
  const HostFs* host_;
  vfio::UseProbe* inner_;
};

/// Finds the processes that have a device node open, or mapped although closed. It walks the host's /proc,
/// also for containers and threads with their own open files; it compares nodes by number and opens no
/// device. It needs the host's PID namespace. A process that may not be looked into is noted in
/// UseReport::unknown. A process that takes longer than `patience` makes the report blind; after three of
/// them no more are looked at. While such a look waits in the kernel, it keeps a thread, and later calls do
/// not look at that process again. The processes of a pod have twice that time in all. A pod that takes
/// longer, or in which the kernel does not answer about a process, counts as a user of every device instead,
/// so that a drain can evict it. A process that ends meanwhile is no user. A user's service is named only if
/// none of its processes is a VM or in a pod. Errors: /proc cannot be listed, or shows no process. ABI:
/// proc(5): fd, maps, map_files, task, comm, cmdline, cgroup.
class ProcUseProbe final : public vfio::UseProbe {
 public:
  explicit ProcUseProbe(const HostFs& host, std::chrono::milliseconds patience = kReadDeadline)
      : host_(&host), patience_(patience) {}
  Result<vfio::UseReport> look(std::span<const vfio::UseQuestion> questions) override;

 private:
  const HostFs* host_;
  std::chrono::milliseconds patience_;
  std::map<int, std::weak_ptr<void>> late_looks_;  // by process; a look that has ended is expired
};

/// Finds devices that the kubelet has allocated to a pod, before the pod has opened anything. A kubelet that
/// cannot be asked is noted in UseReport::unknown, and in UseReport::blind with KubeletSilence::blinds; there
/// are no errors.
///
/// A device ID stands for
/// - a PCI function, if it is a PCI address (NVIDIA's KubeVirt plugin, Ferry's, a virtual function's vGPU);
/// - a mediated device, if it is its UUID (the same plugins);
/// - an IOMMU group, if it is a number, and also the vfio device of that number (/dev/vfio/devices/vfioN).
///
/// NVIDIA's Kata plugin uses either number, KubeVirt's own plugins use groups, and the two cannot be told
/// apart. Many other plugins number their devices too. A number therefore counts only for resources of
/// nvidia.com, and for resources whose allocated IDs are all groups of vfio. Other IDs belong to unrelated
/// devices. A pod that has a function is a user of its whole IOMMU group.
Result<vfio::UseReport> pod_users(const HostFs& host, const ListPodDevices& list_devices,
                                  KubeletSilence silence, std::span<const vfio::UseQuestion> questions);

/// Finds devices that Ferry's plugin has allocated and whose pod the kubelet does not list yet; pod_users()
/// finds the others. The plugin learns of a release late, or only when a process waits for it. Therefore its
/// allocations count only for a short time after the file's last change, and later only if the kubelet cannot
/// be asked. An unreadable file is noted in UseReport::unknown; there are no errors.
Result<vfio::UseReport> allocated_users(const HostFs& host, const ListPodDevices& list_devices,
                                        std::span<const vfio::UseQuestion> questions);

/// Asks libvirt which running domains have a device, including a domain that is just starting and has opened
/// nothing yet. Without a libvirt socket nothing is asked. A missing answer is noted in UseReport::unknown
/// and is never an error.
Result<vfio::UseReport> libvirt_users(const HostFs& host, const virt::VirtHelper& helper,
                                      std::span<const vfio::UseQuestion> questions,
                                      std::chrono::milliseconds deadline = virt::kDomainsDeadline);

/// Reports kernel modules that use NVIDIA's and may keep a GPU without any process (nvidia_peermem,
/// nvidia_fs, gdrdrv). The kernel does not say which GPU a module uses, so the report is a note and not a
/// device user. Modules whose use other probes see are left out. There are no errors.
/// ABI: Documentation/ABI/testing/sysfs-module, holders.
Result<vfio::UseReport> module_users(const HostFs& host, std::span<const vfio::UseQuestion> questions);

/// Finds the GPUs and switches of an NVLink fabric whose manager runs on this host. Taking one of them away
/// breaks the links of the others, including those of running VMs. The host has a fabric if nv-fabricmanager
/// runs and a host driver has the switches (the classes that `rules` take on request), or PCI shows no
/// switch. In its modes 1 and 2, and if its mode is not known, the manager shares all switches among VMs,
/// also those on a vfio driver.
vfio::UseReport fabric_users(const HostFs& host, const vfio::Inventory& inventory,
                             const vfio::AcceleratorRules& rules,
                             std::span<const vfio::UseQuestion> questions);

/// The manager as the user of the switches on vfio drivers that it shares among VMs. UseReport::blind says
/// that no other device user was looked for. Absent: there are no such switches.
std::optional<vfio::UseReport> users_of_shared_switches(const HostFs& host, const vfio::Inventory& inventory,
                                                        const vfio::AcceleratorRules& rules);

/// The check `fabric-manager`: a switch with a driver of the host needs its manager there. A VM with a GPU of
/// such a board may work, but for CUDA, which fails with error 802. Absent: PCI shows no switch here.
std::optional<Check> fabric_check(const HostFs& host, const vfio::Inventory& inventory,
                                  const vfio::AcceleratorRules& rules);

/// Finds screens that need a device: the boot display (sysfs boot_vga), and a framebuffer of the firmware
/// inside its BARs (proc/iomem). If that file or the BARs cannot be read, or the file hides addresses for
/// lack of CAP_SYS_ADMIN, `unknown` says so. A device on a vfio driver shows nothing. Devices that are not
/// PCI functions are skipped.
Result<vfio::UseReport> screen_users(const HostFs& host, std::span<const vfio::UseQuestion> questions);

/// Finds the GPUs that nvidia_drm has open for screens and its console, without any process. Such a GPU is on
/// driver nvidia and has a DRM card; the module runs with modeset on, or sys/class/graphics/fb*/device shows
/// its framebuffer. Each GPU is reported with the others that the module serves too. The probe does not ask
/// for the binding of the console (sys/class/vtconsole) nor for fbdev, since the module holds the GPU either
/// way. An unreadable parameter (its mode is 0400) is reported as `unknown`. Devices that are not PCI
/// functions are skipped. ABI: NVIDIA's open kernel module, nv_drm_dev_load() in nvidia-drm-drv.c.
Result<vfio::UseReport> console_users(const HostFs& host, std::span<const vfio::UseQuestion> questions);

}  // namespace ferry::host

// SPDX-License-Identifier: Apache-2.0
// The question who uses a device. It is asked before any write, since the kernel's unbind never refuses: it
// takes the device away or hangs. The caller supplies the probes over /proc, pod resources and libvirt.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/pinned.h"
#include "common/result.h"
#include "hostfs/host_fs.h"
#include "vfio/pci/inventory.h"

namespace ferry::vfio {

/// A node through which a device can be open. Nodes are compared by number: containers see other paths.
struct DeviceNode {
  std::string name;  ///< for people: "/dev/vfio/12", "/dev/dri/card0"
  DeviceNumber number;
  bool block = false;  ///< true: a block device's number; false: a character device's
};

/// Parses the content of a sysfs `dev` file: "226:0".
std::optional<DeviceNumber> parse_device_number(std::string_view text);

struct UseQuestion {
  std::string device;  ///< PCI address or mdev UUID: the key of the answer
  std::vector<DeviceNode> nodes;
  /// Disks and network adapters at the ports of a USB controller: "disk /dev/sdb". They count as in use.
  std::vector<std::string> attached = {};
};

/// The UseProbe questions before a change of `addresses`: every device node below each function, and its
/// group's node. Nodes are found through the sysfs `dev` files, so they need no name.
std::vector<UseQuestion> use_questions(const HostFs& host, const Inventory& inventory,
                                       const std::vector<PciAddress>& addresses);

/// A device user, or a part of the host that depends on the device.
struct DeviceUser {
  enum class Kind {
    process,
    virtual_machine,
    pod,
    attached,        ///< a disk or a network link of it, or at one of its USB ports
    boot_display,    ///< the firmware's screen
    framebuffer,     ///< the firmware's framebuffer lies in its memory
    fabric,          ///< part of an NVLink fabric whose manager is active
    console,         ///< a kernel module has it open for screens, without any process
    resource_claim,  ///< of Kubernetes: hostd has prepared it for a pod
  };
  Kind kind = Kind::process;
  std::string name = {};        ///< a command, VM, attached device, framebuffer or module
  std::optional<int> pid = {};  ///< absent if only libvirt or the kubelet knows the user
  std::string what;             ///< the node or claim that is in use; empty if `name` says all
  std::string pod_uid = {};     ///< empty: in no pod
  /// The service of the host that a process belongs to, "nvidia-persistenced.service", if that can be stopped
  /// without ending a VM or a container. Empty otherwise.
  std::string service = {};
  bool closes_on_request = false;  ///< nvidia-persistenced of a driver container, asked by PersistenceSwitch
  /// Other devices that a module uses and can only close together with this one.
  std::set<std::string> also = {};

  /// "VM demo-gpu (pid 412) holds /dev/vfio/12", "process dcgm (pid 5) of dcgm.service holds /dev/nvidia0".
  /// Control characters of a name are made visible, so that it cannot steer a terminal (visible_text.h);
  /// `name` itself keeps them.
  std::string text() const;
  /// Advice how to end the use: "stop the VM first".
  std::string_view remedy() const;
  /// True if taking the device away harms only a screen, which --force may override.
  bool only_a_screen() const { return kind == Kind::boot_display || kind == Kind::framebuffer; }
  auto operator<=>(const DeviceUser&) const = default;
};

/// A kind's name for programs: "process", "virtual_machine".
std::string_view text(DeviceUser::Kind kind);

struct UseReport {
  std::map<std::string, std::vector<DeviceUser>> users;  ///< by UseQuestion::device; absent or empty: unused
  std::vector<std::string> unknown;  ///< questions without answer, for people ("libvirt: no answer in 2 s")
  /// The reason why a device user may have been missed. An empty list of users then proves nothing, and no
  /// device may be taken away. Empty: none was missed.
  std::string blind = {};
  std::string blind_hint = {};                     ///< what to do then; empty: look with more rights
  std::map<std::string, std::string> unseen = {};  ///< the same for single devices, by UseQuestion::device

  std::span<const DeviceUser> of(const std::string& device) const;
  /// The reason why a user of `device` may have been missed; empty: none was missed.
  std::string_view blind_to(const std::string& device) const;
  /// The advice for such a reason. Empty: the reason says it.
  std::string_view remedy_of_blindness() const;
};

class UseProbe : Pinned {
 public:
  virtual ~UseProbe() = default;

  /// Looks once, for all devices. Questions without an answer go to UseReport::unknown. After an error
  /// nothing is known, and nothing may be written.
  virtual Result<UseReport> look(std::span<const UseQuestion> questions) = 0;
};

/// Lets one thread at a time call a probe and the functions that it has guarded().
class OneAtATime final : public UseProbe {
 public:
  explicit OneAtATime(UseProbe& probe) : probe_(probe) {}
  Result<UseReport> look(std::span<const UseQuestion> questions) override {
    const std::lock_guard lock(mutex_);
    return probe_.look(questions);
  }
  /// Empty for an empty function.
  template <typename... Arguments>
  std::function<void(Arguments...)> guarded(std::function<void(Arguments...)> call) {
    if (!call) return {};
    return [this, inner = std::move(call)](Arguments... arguments) {
      const std::lock_guard lock(mutex_);
      inner(arguments...);
    };
  }

 private:
  UseProbe& probe_;
  std::mutex mutex_;
};

// Names of an IOMMU group's device node.

/// The names that a group's node may have in /dev/vfio and in sys/class/vfio: the group's number, with
/// "noiommu-" before it if vfio took the members without an IOMMU. A group has one node at most. It has none
/// if no member is on vfio, or if the kernel has no group nodes (CONFIG_VFIO_GROUP).
/// ABI: Documentation/driver-api/vfio.rst; drivers/vfio/group.c.
inline std::array<std::string, 2> group_node_names(std::uint32_t group) {
  std::string number = std::to_string(group);
  std::string without_iommu = "noiommu-" + number;
  return {std::move(number), std::move(without_iommu)};
}

/// Devices of one resource that the kubelet has allocated to one container. The container may not have
/// started yet, since the kubelet allocates devices when it admits the pod.
struct PodDevice {
  std::string name_space;  ///< the pod's
  std::string pod;
  std::string container;
  /// "nvidia.com/GH100_H100_SXM5_80GB". For a device of a resource claim: the kind of its CDI name
  /// ("nvidia.com/gpu"), or its driver ("gpu.nvidia.com").
  std::string resource;
  /// The plugin's names for the devices: PCI addresses, UUIDs, numbers, anything.
  std::vector<std::string> ids = {};
  /// NUMA nodes of all devices together, ascending. Empty: the kubelet does not report them.
  std::vector<std::int64_t> numa_nodes = {};

  bool operator==(const PodDevice&) const = default;
};

}  // namespace ferry::vfio

// SPDX-License-Identifier: Apache-2.0
// Who holds a device? Asked before anything is written: the kernel's unbind never refuses, it takes away or
// hangs. Only the question stands here; the probes over /proc, pod resources and libvirt are handed in from
// above.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/host_fs.h"
#include "common/result.h"

namespace ferry {

/// A device node through which a device can be held open, compared by number: containers see other paths.
struct DeviceNode {
  std::string name;  ///< for people: "/dev/vfio/12", "/dev/dri/card0"
  DeviceNumber number;
  bool block = false;  ///< a block device's number; else a character device's
};

/// One device to ask about.
struct UseQuestion {
  std::string device;  ///< PCI address or mdev UUID: the key of the answer
  std::vector<DeviceNode> nodes;
};

/// One who holds a device, or what of the host depends on it.
struct Holder {
  enum class Kind {
    process,
    virtual_machine,
    pod,
    mount,         ///< a file system on it is mounted
    swap,          ///< the host swaps to it
    claim,         ///< something else in the kernel has claimed it: `name` lies on it, if that is known
    network_link,  ///< a network link of it is up
    boot_display,  ///< the firmware's screen
    framebuffer,   ///< the firmware's framebuffer lies in its memory
    fabric,        ///< part of an NVLink fabric whose manager is active
    console,       ///< a kernel module shows a console of its own through it, without any process
  };
  Kind kind = Kind::process;
  std::string name;        ///< command name, or the VM's; a mount point, a link's, framebuffer's or module's
  std::optional<int> pid;  ///< absent when only libvirt or the kubelet knows
  std::string what;        ///< the node or claim through which it holds; empty where `name` says all
  std::string pod_uid;     ///< empty when in no pod
  /// "nvidia-persistenced.service": the service of the host that a process belongs to, if it may be stopped
  /// by that name without ending a VM or a container. Empty otherwise.
  std::string service = {};
  /// Other devices that it holds as well and can only let go of together with this one (a module's).
  std::set<std::string> also = {};

  /// "VM demo-gpu (pid 412) holds /dev/vfio/12", "process dcgm (pid 5) of dcgm.service holds /dev/nvidia0".
  /// Whoever chose the name gives the reader's terminal no orders with it (visible_text.h); `name` itself is
  /// as it is.
  std::string text() const;
  /// What to do about it: "stop the VM first".
  std::string_view remedy() const;
  /// Whether moving the device away harms nobody's work but a screen: what --force may override.
  bool only_a_screen() const { return kind == Kind::boot_display || kind == Kind::framebuffer; }
  auto operator<=>(const Holder&) const = default;
};

/// "process", "virtual_machine": for programs.
std::string_view text(Holder::Kind kind);

struct UseReport {
  std::map<std::string, std::vector<Holder>> holders;  ///< by UseQuestion::device; absent or empty: free
  std::vector<std::string> unknown;  ///< what could not be asked, for people ("libvirt: no answer in 2 s")
  /// The reason, when a holder may have gone unseen: that none is named then proves nothing, and nothing may
  /// be taken away. Empty otherwise.
  std::string blind = {};
  std::map<std::string, std::string> unseen = {};  ///< the same of single devices, by UseQuestion::device

  std::span<const Holder> of(const std::string& device) const;
  /// Why a holder of `device` may have gone unseen; empty: none has.
  std::string_view blind_to(const std::string& device) const;
};

class UseProbe {
 public:
  UseProbe() = default;
  UseProbe(const UseProbe&) = delete;
  UseProbe& operator=(const UseProbe&) = delete;
  UseProbe(UseProbe&&) = delete;
  UseProbe& operator=(UseProbe&&) = delete;
  virtual ~UseProbe() = default;

  /// Looks once, for all devices. What cannot be known is said in UseReport::unknown; an error means that
  /// nothing at all could be learnt, and then nothing may be written.
  virtual Result<UseReport> look(std::span<const UseQuestion> questions) = 0;
};

}  // namespace ferry

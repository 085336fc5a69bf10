// SPDX-License-Identifier: Apache-2.0
// The host status (kStatusFile), for the device plugin, the agent and people. hostd alone writes it,
// atomically and only after a change.
//
//   {"version": 2, "generation": 17, "pid": 4711, "boot_id": "...",
//    "desired": {"generation": 12, "policy": "NAME", "source": "..."} | null,
//    "phase": "idle | ready | applying | blocked | failed",
//    "accelerators": [
//      {"address": "0000:17:00.0", "id": "10de:2330", "subsystem": "10de:16c1" | null, "class": "0302",
//       "model": "...", "iommu_group": 42 | null,
//       "driver": "vfio-pci" | null, "mode": "host | passthrough | vgpu", "desired": as mode | null,
//       "allocation": "device-plugin | dra",
//       "state": "ready | blocked | failed | pending | unmanaged", "reason": "...", "hint": "...",
//       "users": [{"kind": "virtual_machine", "name": "...", "pid": 412 | null,
//                    "pod_uid": "..." | null, "by_the_plugin": true | false}], "only_in_use": true | false,
//       "findings": [{"rule": "off-the-bus", "about": "0000:17:00.0", "answer": "yes | not looked at",
//                     "blocks": ["bind", "ready"], "text": "...", "advice": "..."}],
//       "vgpus": [{"id": "...", "type": "...", "users": [as above] | null}],
//        "more_vgpus": {"L40S-12Q": 4},
//        "registers": {"read_at": 1796000000, keys of vfio/registers/register_fields.h} | null,
//        "sanitize": {"state": "in_use | sanitizing | available | failed", "since": 1796000000, "count": 3,
//                     "result": "none | proven | unproven | failed | accepted", "method": "hot-reset",
//                     "detail": "...", "milliseconds": 2100} | null}],
//    "unavailable": [{"id": "0000:17:00.0", "reason": "..."}],
//    "unfit": [{"id": "0000:17:00.0", "driver": "vfio-pci", "reason": "..."}],
//    "sanitized": [{"id": "0000:17:00.0", "state": as above, "count": 3}],
//    "error": {"message": "...", "hint": "..."} | null,
//    "features": {"iommu": "on | off | unsafe_noiommu", "largest_group": 2 | null, "machine": "..." | null,
//                 "vgpu_types": {"L40S-12Q": 8}} | null,
//    "standby": "NVIDIA's sandbox-device-plugin serves this node" | null}
//
// `desired.generation` is null if desired.json has none, and `standby` if the device plugin may serve. New
// versions of Ferry only add keys; another change raises `version`.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/words.h"
#include "common/result.h"
#include "vfio/judgement/finding.h"
#include "vfio/pci/pci_address.h"
#include "vfio/registers/register_facts.h"

namespace ferry::api {

struct ReportedUser {
  std::string kind;  ///< "virtual_machine", "process", "pod": DeviceUser::Kind
  std::string name;  ///< a pod's "namespace/name", if the kubelet names it
  std::optional<int> pid = {};
  std::string pod_uid = {};  ///< of a process in a pod; empty: in no pod, or only the kubelet knows the pod
  /// True for a pod that only the device plugin reports. The kubelet names the pod, as another entry.
  bool by_the_plugin = false;

  /// "virtual machine guest-7 (pid 4711)", for people.
  std::string text() const;
  bool operator==(const ReportedUser&) const = default;
};

/// A finding of the judgement (vfio/judgement/finding.h), except about device users.
struct ReportedFinding {
  std::string rule;  ///< Rule::name
  vfio::PciAddress about;
  vfio::Answer answer = vfio::Answer::yes;
  std::vector<std::string> blocks = {};  ///< acts that it blocks: "bind", "ready"
  std::string text = {};
  std::string advice = {};

  bool has(std::string_view act) const { return std::ranges::find(blocks, act) != blocks.end(); }
  bool operator==(const ReportedFinding&) const = default;
};
ReportedFinding reported(const vfio::Finding& finding);

struct VgpuStatus {
  std::string id;
  std::string type;
  /// All users, whether or not the kubelet knows them. Absent: not looked up yet, or an incomplete look.
  std::optional<std::vector<ReportedUser>> users = {};
  bool operator==(const VgpuStatus&) const = default;
};

/// The registers of an accelerator (vfio/registers).
struct ReportedRegisters {
  /// The facts beside the problem are of an earlier reading if `in_use` is set.
  vfio::RegisterFacts facts;
  std::uint64_t read_at = 0;  ///< time of the facts, in seconds since 1970; 0: none were ever read
  std::uint64_t binding = 0;  ///< vfio::binding_of(), at the last reading
  bool operator==(const ReportedRegisters&) const = default;
};

/// A GPU between two users (host/sanitize). The facts beside the state are of the last sanitizing.
struct SanitizeStatus {
  SanitizeState state = SanitizeState::available;
  std::uint64_t since = 0;  ///< of the state, in seconds since 1970
  /// The sanitizings that have ended, also in vain. The device plugin tells by it that one has ended since a
  /// release.
  std::uint64_t count = 0;
  SanitizeResult result = SanitizeResult::none;
  std::string method = {};  ///< vfio::Sanitizing::method; empty: no reset was made
  std::string detail = {};  ///< why nothing is proven, or what failed; empty: it is proven
  std::uint64_t milliseconds = 0;
  bool operator==(const SanitizeStatus&) const = default;
};

struct AcceleratorStatus {
  vfio::PciAddress address;
  std::string id;              ///< "10de:2330"
  std::string subsystem = {};  ///< "10de:16c1"; empty: it has none
  std::string pci_class = {};  ///< "0302"
  std::string model;           ///< empty: the name is not known
  std::optional<std::uint32_t> iommu_group;
  std::optional<std::string> driver;
  Mode mode = Mode::host;       ///< the present mode
  std::optional<Mode> desired;  ///< absent: the policy does not cover it, or gives it to claims
  /// The present one. It differs from the policy's until no pod, VM or claim uses the GPU.
  Allocation allocation = Allocation::device_plugin;
  GpuState state = GpuState::unmanaged;
  std::string reason;  ///< of blocked, failed and pending
  std::string hint;
  std::vector<ReportedUser> users;  ///< of blocked
  bool only_in_use = false;         ///< of blocked: device users are the only obstacle
  /// The findings of its unit, the gravest first. Absent: an older hostd wrote none.
  std::optional<std::vector<ReportedFinding>> findings = {};
  std::vector<VgpuStatus> vgpus;
  /// Further vGPUs that can be created now, by type. Empty: the GPU cannot be divided, or not yet.
  std::map<std::string, std::uint32_t> more_vgpus = {};
  std::optional<ReportedRegisters> registers = {};  ///< absent: hostd does not read them, or not yet
  /// Absent: the policy does not ask for it, or no VM gets the GPU whole.
  std::optional<SanitizeStatus> sanitize = {};

  /// True if its PCI class is that of a GPU, of a display or processing accelerator, or unknown. NVSwitches
  /// and the rest of an unplugged GPU, such as an audio function, do not count.
  bool counts_as_gpu() const;
  bool operator==(const AcceleratorStatus&) const = default;
};

/// Features of the node as a whole, for its labels.
struct NodeFeatures {
  std::string iommu;  ///< "on", "off", or "unsafe_noiommu" for vfio without an IOMMU
  /// Functions in the largest IOMMU group with an accelerator. Absent: no accelerator has a group.
  std::optional<std::uint32_t> largest_group = {};
  std::string machine = {};  ///< product name; empty: the firmware does not say
  /// The number of vGPUs by type that fit on the GPUs that offer it if these carry nothing else. Types
  /// without a known number are left out.
  std::map<std::string, std::uint32_t> vgpu_types = {};
  bool operator==(const NodeFeatures&) const = default;
};

struct DesiredMark {
  std::optional<std::uint64_t> generation;  ///< as in desired.json
  std::string policy = {};
  std::string source = {};
  bool operator==(const DesiredMark&) const = default;
};

struct StatusError {
  std::string message;
  std::string hint;
  bool operator==(const StatusError&) const = default;
};

/// A device that the plugin must not advertise now, since it is about to change.
struct UnavailableDevice {
  std::string id;      ///< its name in sysfs: the address of a function, a mediated device's UUID
  std::string reason;  ///< for people
  bool operator==(const UnavailableDevice&) const = default;
};

struct HostStatus {
  std::uint64_t generation = 0;  ///< grows with each change of the file, also across restarts
  int pid = 0;
  std::string boot_id;
  std::optional<DesiredMark> desired;  ///< absent: no desired state, or it cannot be read
  NodePhase phase = NodePhase::idle;
  std::vector<AcceleratorStatus> accelerators;
  std::vector<UnavailableDevice> unavailable;  ///< devices that must not be advertised now
  std::optional<StatusError> error;            ///< an error that concerns the node and not one accelerator
  std::optional<NodeFeatures> features = {};   ///< absent: the host could not be scanned
  std::string standby = {};  ///< why the plugin must advertise nothing (serving.h); empty: it may serve

  /// The generation of desired.json that this is about; absent: none, or a person's file without one.
  std::optional<std::uint64_t> desired_generation() const {
    return desired ? desired->generation : std::nullopt;
  }
  bool operator==(const HostStatus&) const = default;
};

/// A function that no VM can get, by a fact that the device plugin may not see for itself.
struct UnfitDevice {
  std::string id;           ///< the address of the accelerator
  std::string driver = {};  ///< as hostd saw it; under another one the reason is void. Empty: none
  std::string reason = {};
  bool operator==(const UnfitDevice&) const = default;
};
/// The accelerators with a finding against "advertise".
std::vector<UnfitDevice> unfit_devices(const HostStatus& status);

/// A GPU that hostd sanitizes after each use.
struct SanitizedDevice {
  std::string id;  ///< the address of the accelerator
  SanitizeState state = SanitizeState::available;
  std::uint64_t count = 0;  ///< SanitizeStatus::count
  bool operator==(const SanitizedDevice&) const = default;
};

/// The file's content. Bytes that are not UTF-8 are replaced; a process may have such a name.
std::string host_status_text(const HostStatus& status);

/// Unknown keys are ignored, and keys that a reader can do without may be absent. Errc::malformed_host: not
/// such a file, another version, or a key that is missing or has a wrong value; the message has the place.
Result<HostStatus> read_host_status(std::string_view text);

/// The part of HostStatus that the device plugin must obey.
struct PluginOrders {
  std::uint64_t generation = 0;
  std::vector<UnavailableDevice> unavailable;
  std::vector<UnfitDevice> unfit = {};          ///< unfit_devices()
  std::vector<SanitizedDevice> sanitized = {};  ///< the accelerators with AcceleratorStatus::sanitize
  std::string standby = {};
  bool operator==(const PluginOrders&) const = default;
};

/// Reads these keys alone, whatever else is in the file of a newer hostd. Errors: as read_host_status().
Result<PluginOrders> read_plugin_orders(std::string_view text);

}  // namespace ferry::api

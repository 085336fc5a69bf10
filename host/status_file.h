// SPDX-License-Identifier: Apache-2.0
// The host status, run/ferry/status.json, for the device plugin, the agent and people. hostd alone writes it,
// atomically and only after a change.
//
//   {"version": 2, "generation": 17, "pid": 4711, "boot_id": "...",
//    "desired": {"generation": 12, "policy": "NAME", "source": "..."} | null,
//    "phase": "idle | ready | applying | blocked | failed",
//    "accelerators": [
//      {"address": "0000:17:00.0", "id": "10de:2330", "subsystem": "10de:16c1" | null, "class": "0302",
//       "model": "...", "iommu_group": 42 | null,
//       "driver": "vfio-pci" | null, "mode": "host | passthrough | vgpu", "desired": as mode | null,
//       "state": "ready | blocked | failed | pending | unmanaged", "reason": "...", "hint": "...",
//       "users": [{"kind": "virtual_machine", "name": "...", "pid": 412 | null,
//                    "pod_uid": "..." | null, "by_the_plugin": true | false}], "only_in_use": true | false,
//       "vgpus": [{"id": "...", "type": "...", "users": [as above] | null}],
//        "more_vgpus": {"L40S-12Q": 4}}],
//    "unavailable": [{"id": "0000:17:00.0", "reason": "..."}],
//    "error": {"message": "...", "hint": "..."} | null,
//    "features": {"iommu": "on | off | unsafe_noiommu", "largest_group": 2 | null, "machine": "..." | null,
//                 "vgpu_types": {"L40S-12Q": 8}} | null,
//    "standby": "NVIDIA's sandbox-device-plugin serves this node" | null}
//
// `desired.generation` is null if desired.json has none, and `standby` if the device plugin may serve. New
// versions of Ferry only add keys.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/plugin_files.h"
#include "common/result.h"
#include "policy/policy.h"
#include "vfio/pci/pci_address.h"

namespace ferry::host {

// The host status as values; status_file.h reads and writes it as a file.

enum class NodePhase {
  idle,  ///< there is no desired.json, and nothing is changed
  ready,
  applying,  ///< hostd waits until the kubelet no longer lists the devices, or writes to the host
  blocked,   ///< a device is in use or cannot be moved whole; the rest is as desired
  failed,    ///< a change was attempted and did not succeed, or the desired state cannot be read
};
std::string_view text(NodePhase phase);
std::optional<NodePhase> parse_node_phase(std::string_view word);

/// The state of one accelerator in relation to its desired mode.
enum class GpuState {
  ready,
  blocked,
  failed,
  pending,    ///< about to be changed
  unmanaged,  ///< the policy does not cover it
};
std::string_view text(GpuState condition);
std::optional<GpuState> parse_gpu_state(std::string_view word);

struct ReportedUser {
  std::string kind;  ///< "virtual_machine", "process", "pod": DeviceUser::Kind
  std::string name;  ///< a pod's "namespace/name", if the kubelet names it
  std::optional<int> pid;
  std::string pod_uid = {};  ///< of a process in a pod; empty: in no pod, or only the kubelet knows the pod
  /// True for a pod that only the device plugin reports. The kubelet names the pod, as another entry.
  bool by_the_plugin = false;
  bool operator==(const ReportedUser&) const = default;
};

struct VgpuStatus {
  std::string id;
  std::string type;
  /// All users, whether or not the kubelet knows them. Absent: not looked up yet, or an incomplete look.
  std::optional<std::vector<ReportedUser>> users = {};
  bool operator==(const VgpuStatus&) const = default;
};

struct AcceleratorStatus {
  vfio::PciAddress address;
  std::string id;              ///< "10de:2330"
  std::string subsystem = {};  ///< "10de:16c1"; empty: it has none
  std::string pci_class = {};  ///< "0302"
  std::string model;           ///< empty: the name is not known
  std::optional<std::uint32_t> iommu_group;
  std::optional<std::string> driver;
  policy::Mode mode = policy::Mode::host;  ///< the present mode
  std::optional<policy::Mode> desired;     ///< absent: the policy does not cover it
  GpuState state = GpuState::unmanaged;
  std::string reason;  ///< of blocked, failed and pending
  std::string hint;
  std::vector<ReportedUser> users;  ///< of blocked
  bool only_in_use = false;         ///< of blocked: device users are the only obstacle
  std::vector<VgpuStatus> vgpus;
  /// Further vGPUs that can be created now, by type. Empty: the GPU cannot be divided, or not yet.
  std::map<std::string, std::uint32_t> more_vgpus = {};
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
  std::string policy;
  std::string source;
  bool operator==(const DesiredMark&) const = default;
};

struct StatusError {
  std::string message;
  std::string hint;
  bool operator==(const StatusError&) const = default;
};

struct HostStatus {
  std::uint64_t generation = 0;  ///< grows with each change of the file, also across restarts
  int pid = 0;
  std::string boot_id;
  std::optional<DesiredMark> desired;  ///< absent: no desired state, or it cannot be read
  NodePhase phase = NodePhase::idle;
  std::vector<AcceleratorStatus> accelerators;
  std::vector<Withdrawal> withdraw;           ///< devices that must not be advertised now
  std::optional<StatusError> error;           ///< an error that concerns the node and not one accelerator
  std::optional<NodeFeatures> features = {};  ///< absent: the host could not be scanned
  /// The reason why the device plugin must advertise nothing (common/plugin_files.h); empty: it may serve.
  std::string standby = {};
  bool operator==(const HostStatus&) const = default;
};

/// The file's content. Bytes that are not UTF-8 are replaced; a process may have such a name.
std::string status_file_text(const HostStatus& state);

/// Unknown keys are ignored. Errc::malformed_host: not such a file, another version, or a key that is missing
/// or has a wrong value.
Result<HostStatus> read_status_file(std::string_view text);

}  // namespace ferry::host

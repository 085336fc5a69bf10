// SPDX-License-Identifier: Apache-2.0
// Reads the host status of `ferry hostd`, /run/ferry/status.json, as far as the agent reports it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "policy/policy.h"

namespace ferry::agent {

/// Relative to the host's root.
inline constexpr const char* kStatusFile = "run/ferry/status.json";
/// Held while hostd keeps the node (hostfs/locks.h).
inline constexpr const char* kHostdLiveness = "run/ferry/hostd.running";

enum class NodePhase {
  ready,
  applying,  ///< also while hostd waits until the kubelet no longer lists the devices to change
  blocked,   ///< devices to change are in use; nothing was written to them
  failed,
  idle,
};

struct ReportedUser {
  std::string text;          ///< "virtual machine guest-7 (pid 4711)"
  std::string kind = {};     ///< "virtual_machine", "process", "pod"
  std::string name = {};     ///< of a pod: "namespace/name", if the kubelet names it
  std::string pod_uid = {};  ///< of a process in a pod; empty: in none, or unknown
  /// Reported by the device plugin, which knows no pod's name; the kubelet's own entry has the name.
  bool by_the_plugin = false;
};

struct VgpuStatus {
  std::string id;    ///< UUID, or address of its virtual function
  std::string type;  ///< "L40S-12Q"; empty: unknown
  /// Its device users, allocated by the kubelet or not. Absent: unknown.
  std::optional<std::vector<ReportedUser>> users = {};
};

struct AcceleratorStatus {
  std::string address;
  std::string id = {};         ///< "10de:26b9"; empty: unknown
  std::string subsystem = {};  ///< "10de:16c1"; empty: unknown
  std::string pci_class = {};  ///< "0302"; empty: unknown
  std::string model;           ///< empty: unknown
  std::optional<std::uint32_t> iommu_group = {};
  std::string driver = {};                 ///< empty: none
  policy::Mode mode = policy::Mode::host;  ///< present mode
  std::optional<policy::Mode> desired;     ///< absent: the policy does not select it
  std::string state;                       ///< "ready", "blocked", "failed", "pending", "unmanaged"
  std::string reason;
  std::string hint;
  std::vector<ReportedUser> users;
  bool only_in_use = false;       ///< refused for its device users alone; false also if unknown
  std::vector<VgpuStatus> vgpus;  ///< existing ones
  /// Number of further vGPUs that could be created on it now, by type; empty: none, or unknown.
  std::map<std::string, std::uint32_t> more_vgpus = {};
};

/// True if its PCI class is that of a GPU, or unknown. The rest of an unplugged GPU, such as an audio
/// function, does not count.
bool counts_as_gpu(const AcceleratorStatus& accelerator);

/// Properties of the whole node.
struct NodeFeatures {
  std::string iommu;                                     ///< "on", "off", "unsafe_noiommu"
  std::optional<std::uint32_t> largest_group = {};       ///< functions in it; absent: no GPU has a group
  std::string machine = {};                              ///< empty: unknown
  std::map<std::string, std::uint32_t> vgpu_types = {};  ///< capacity of the empty node, by type
};

struct HostStatus {
  std::optional<std::uint64_t> desired;  ///< the generation of desired.json that this is about
  NodePhase phase = NodePhase::idle;
  std::vector<AcceleratorStatus> accelerators;
  std::vector<std::string> withdraw;  ///< devices that must not be advertised now
  std::string error;                  ///< general error, not of an accelerator; empty: none
  std::string hint;                   ///< how to resolve `error`
  /// Absent: hostd has not scanned the host, or is older than this field.
  std::optional<NodeFeatures> features = {};
};

/// Unknown keys are ignored, since a newer hostd may write them. Errc::malformed_host: the message has the
/// place.
Result<HostStatus> read_host_status(std::string_view text);

}  // namespace ferry::agent

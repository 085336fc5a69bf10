// SPDX-License-Identifier: Apache-2.0
// The host status as values; state_file.h reads and writes it as a file.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "common/withdrawals.h"
#include "policy/policy.h"
#include "vfio/pci_address.h"

namespace ferry {

enum class NodePhase {
  nothing_wanted,  ///< there is no wanted.json, and nothing is changed
  as_wanted,
  withdrawing,  ///< hostd waits for the device plugin to withdraw devices
  changing,     ///< the host is being written to
  refused,      ///< a device is in use or cannot be moved whole; the rest is as desired
  failed,       ///< a change was attempted and did not succeed, or the desired state cannot be read
};
std::string_view text(NodePhase phase);
std::optional<NodePhase> parse_node_phase(std::string_view word);

/// The state of one accelerator in relation to its desired mode.
enum class Standing {
  as_wanted,
  refused,
  failed,
  waiting,     ///< about to be changed
  left_alone,  ///< the policy does not cover it
};
std::string_view text(Standing standing);
std::optional<Standing> parse_standing(std::string_view word);

struct StateHolder {
  std::string kind;  ///< "virtual_machine", "process", "pod": Holder::Kind
  std::string name;  ///< a pod's "namespace/name", if the kubelet names it
  std::optional<int> pid;
  std::string pod_uid = {};  ///< of a process in a pod; empty: in no pod, or only the kubelet knows the pod
  /// True for a pod that only the device plugin reports. The kubelet names the pod, as another entry.
  bool by_the_plugin = false;
  bool operator==(const StateHolder&) const = default;
};

struct StateVgpu {
  std::string id;
  std::string type;
  /// All users, whether or not the kubelet knows them. Absent: not looked up yet, or an incomplete look.
  std::optional<std::vector<StateHolder>> holders = {};
  bool operator==(const StateVgpu&) const = default;
};

struct AcceleratorState {
  PciAddress address;
  std::string id;              ///< "10de:2330"
  std::string subsystem = {};  ///< "10de:16c1"; empty: it has none
  std::string pci_class = {};  ///< "0302"
  std::string model;           ///< empty: the name is not known
  std::optional<std::uint32_t> iommu_group;
  std::optional<std::string> driver;
  Mode mode = Mode::host;      ///< the present mode
  std::optional<Mode> wanted;  ///< absent: the policy does not cover it
  Standing state = Standing::left_alone;
  std::string reason;  ///< of refused, failed and waiting
  std::string hint;
  std::vector<StateHolder> holders;  ///< of refused
  bool only_in_use = false;          ///< of refused: device users are the only obstacle
  std::vector<StateVgpu> vgpus;
  /// Further vGPUs that can be created now, by type. Empty: the GPU cannot be divided, or not yet.
  std::map<std::string, std::uint32_t> more_vgpus = {};
  bool operator==(const AcceleratorState&) const = default;
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

struct WantedMark {
  std::optional<std::uint64_t> generation;  ///< as in wanted.json
  std::string policy;
  std::string asked_by;
  bool operator==(const WantedMark&) const = default;
};

struct StateError {
  std::string message;
  std::string hint;
  bool operator==(const StateError&) const = default;
};

struct NodeState {
  std::uint64_t generation = 0;  ///< grows with each change of the file, also across restarts
  int pid = 0;
  std::string boot_id;
  std::optional<WantedMark> wanted;  ///< absent: no desired state, or it cannot be read
  NodePhase phase = NodePhase::nothing_wanted;
  std::vector<AcceleratorState> accelerators;
  std::vector<Withdrawal> withdraw;           ///< devices that must not be advertised now
  std::optional<StateError> error;            ///< an error that concerns the node and not one accelerator
  std::optional<NodeFeatures> features = {};  ///< absent: the host could not be scanned
  /// The reason why the device plugin must advertise nothing (common/serving_file.h); empty: it may serve.
  std::string stand_back = {};
  bool operator==(const NodeState&) const = default;
};

}  // namespace ferry

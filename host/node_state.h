// SPDX-License-Identifier: Apache-2.0
// What hostd says of its node: values; as a file, state_file.h.
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
  nothing_wanted,  ///< there is no wanted.json; nothing is changed
  as_wanted,
  withdrawing,  ///< the device plugin is asked to make way
  changing,     ///< the host is being written to
  refused,      ///< something is in use or cannot be moved whole; the rest is as wanted
  failed,       ///< something was tried and did not hold, or what is wanted cannot be read
};
std::string_view text(NodePhase phase);
std::optional<NodePhase> parse_node_phase(std::string_view word);

/// How one accelerator stands to what is wanted of it.
enum class Standing {
  as_wanted,
  refused,
  failed,
  waiting,     ///< about to be changed
  left_alone,  ///< nothing is wanted of it
};
std::string_view text(Standing standing);
std::optional<Standing> parse_standing(std::string_view word);

struct StateHolder {
  std::string kind;  ///< "virtual_machine", "process", "pod": Holder::Kind
  std::string name;  ///< of a pod "namespace/name", where the kubelet says which one it is
  std::optional<int> pid;
  std::string pod_uid = {};  ///< of a process in a pod; empty: it is in none, or the kubelet alone knows it
  /// Of a pod: it is the device plugin that says so. Which pod it is the kubelet says, as another holder.
  bool by_the_plugin = false;
  bool operator==(const StateHolder&) const = default;
};

struct StateVgpu {
  std::string id;
  std::string type;
  /// Who has it, whether the kubelet knows of it or not. Absent: nobody has looked yet, or could see.
  std::optional<std::vector<StateHolder>> holders = {};
  bool operator==(const StateVgpu&) const = default;
};

struct AcceleratorState {
  PciAddress address;
  std::string id;              ///< "10de:2330"
  std::string subsystem = {};  ///< "10de:16c1"; empty: it has none
  std::string pci_class = {};  ///< "0302"
  std::string model;           ///< empty: nobody knows
  std::optional<std::uint32_t> iommu_group;
  std::optional<std::string> driver;
  Mode mode = Mode::host;      ///< as it is
  std::optional<Mode> wanted;  ///< absent: nothing
  Standing state = Standing::left_alone;
  std::string reason;  ///< of refused, failed and waiting
  std::string hint;
  std::vector<StateHolder> holders;  ///< of refused
  bool only_in_use = false;          ///< of refused: nothing but its holders stands in the way
  std::vector<StateVgpu> vgpus;
  /// How many more of each type its driver lists could be made now. Empty: it cannot be divided, or not yet.
  std::map<std::string, std::uint32_t> more_vgpus = {};
  bool operator==(const AcceleratorState&) const = default;
};

/// What a cluster may like to know of the node as a whole.
struct NodeFeatures {
  std::string iommu;  ///< "on", "off" or, of vfio without one, "unsafe_noiommu"
  /// Functions in the largest IOMMU group that an accelerator is in. Absent: none is in any.
  std::optional<std::uint32_t> largest_group = {};
  std::string machine = {};  ///< as its maker calls it; empty: the firmware does not say
  /// How many vGPUs of a type the GPUs carry that offer it, when they carry nothing else. Less those types of
  /// which that is not known.
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
  std::uint64_t generation = 0;  ///< grows with each change of the file, over restarts too
  int pid = 0;
  std::string boot_id;
  std::optional<WantedMark> wanted;  ///< absent: nothing, or it cannot be read
  NodePhase phase = NodePhase::nothing_wanted;
  std::vector<AcceleratorState> accelerators;
  std::vector<Withdrawal> withdraw;           ///< not to be offered to the kubelet now
  std::optional<StateError> error;            ///< of no accelerator alone
  std::optional<NodeFeatures> features = {};  ///< absent: the host could not be scanned
  /// Why the device plugin shall offer nothing at all (common/serving_file.h); empty: it may.
  std::string stand_back = {};
  bool operator==(const NodeState&) const = default;
};

}  // namespace ferry

// SPDX-License-Identifier: Apache-2.0
// The node's view: one value for everything that is known of a node, so that all tables, documents and
// metrics agree. Pure functions; other files read the host.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/stuck_writes.h"
#include "host/node_state.h"
#include "host/offered_devices.h"
#include "mdev/vgpu.h"
#include "policy/gpu_selection.h"
#include "policy/policy.h"
#include "vfio/device_facts.h"
#include "vfio/inventory.h"
#include "vfio/move_plan.h"
#include "vfio/move_record.h"
#include "vfio/use_probe.h"

namespace ferry {

/// The input of a node's view.
struct NodeSight {
  Inventory inventory;
  VgpuInventory vgpus;
  UseReport use;
  VfioDriverTable drivers;
  MoveRecord record;
  std::vector<StuckWrite> stuck;
  std::optional<NodeState> state;                      ///< the host status; absent: hostd has written none
  bool hostd_runs = true;                              ///< false: `state` is not kept up to date
  std::optional<std::chrono::seconds> state_age = {};  ///< since hostd wrote `state`; absent: not known
  std::optional<OfferedDevices> offered;               ///< the plugin's lists; absent: it has written none
  std::map<PciAddress, DeviceFacts> facts = {};        ///< of those that were read
  std::vector<std::string> notes;                      ///< further things that could not be read, for people
};

/// The grade of a condition, which decides its colour.
enum class Health {
  good,
  attention,  ///< works, with a remark for people
  bad,        ///< needs an action before it works as desired
};
std::string_view text(Health health);

/// The one word for the condition of an accelerator.
struct Condition {
  std::string word;  ///< "free", "in use", "use unknown", "refused"
  Health health = Health::good;
  std::string reason = {};  ///< if not good: a sentence without its full stop
  /// The action to take. May be empty of a bad condition; `ferry explain` then says more.
  std::string hint = {};
};

/// The advertised resource and ID of a device.
struct OfferedAs {
  std::string resource;
  std::string id;  ///< as the kubelet knows it
  bool healthy = true;
  bool allocated = false;
  std::string reason = {};       ///< why it is not healthy
  std::string pod = {};          ///< OfferedToKubelet::pod
  bool held_with_group = false;  ///< OfferedToKubelet::held_with_group

  /// Something is wrong with it.
  bool sick() const { return !healthy && !held_with_group; }
};

/// Another function of an accelerator's IOMMU group.
struct MemberView {
  PciFunction function;
  std::string what;          ///< "audio", "bridge", "network": of its class
  bool accelerator = false;  ///< has a row of its own
  bool blocks = false;       ///< its driver keeps the kernel from giving the group to a VM
};

struct VgpuPicture {
  VgpuDevice device;
  std::vector<Holder> holders;
  std::vector<OfferedAs> offers;
};

struct AcceleratorView {
  PciFunction function;
  std::string model;
  Mode mode = Mode::host;
  Condition condition;
  std::vector<MemberView> members;  ///< of its group, without itself, in order of address
  std::vector<Holder> holders;      ///< of the group and of its vGPUs, each once
  std::vector<VgpuPicture> vgpus;
  VgpuFramework framework = VgpuFramework::none;
  std::string obstacle = {};      ///< VgpuGpu::obstacle
  std::vector<OfferedAs> offers;  ///< of the function itself
  std::string not_offered = {};   ///< reason why the plugin does not list it; empty: it does, or has none
  std::optional<AcceleratorState> wish;  ///< the host status of it
  std::optional<PriorState> prior;       ///< its state before Ferry moved it
  /// True if the kernel would let a VM have the group now; otherwise `group_blockers` are in the way.
  bool group_viable = false;
  std::vector<PciAddress> group_blockers;
  /// True if `vfio bind` would move the accelerator if it were unused. That command also needs the whole
  /// card, and moves no other accelerator unless asked to.
  bool movable = false;
  std::vector<std::string> movable_reasons;  ///< why not
  std::string movable_hint = {};
  std::optional<DeviceFacts> facts;

  const PciAddress& address() const { return function.address; }
};

/// A function that counts as an accelerator only where a command or a policy names it, or a virtual function
/// of such a one that a vfio driver has.
struct NamedView {
  PciFunction function;
  std::string model;              ///< empty: no name is known
  std::vector<OfferedAs> offers;  ///< of the function itself
  std::string not_offered = {};   ///< AcceleratorView::not_offered
};

struct NodePicture {
  std::vector<AcceleratorView> accelerators;  ///< in order of address
  std::vector<NamedView> by_name;             ///< in order of address
  std::string whose;                          ///< AcceleratorRules::whose
  std::optional<Error> no_iommu;              ///< reason why no VM can get a device of this host
  bool iommu = false;
  std::optional<WantedMark> wanted;
  std::optional<NodePhase> phase;                      ///< absent: hostd has written none
  std::optional<StateError> error;                     ///< hostd's, of no accelerator alone
  bool hostd_runs = true;                              ///< NodeSight::hostd_runs
  std::optional<std::chrono::seconds> state_age = {};  ///< NodeSight::state_age
  std::vector<std::string> unknown;                    ///< sources of device users that could not be asked
  std::vector<std::string> notes;

  const AcceleratorView* find(const PciAddress& address) const;
  /// nullptr: `by_name` has no such function.
  const NamedView* find_by_name(const PciAddress& address) const;
};

/// The functions whose users are looked up: all that could move with any accelerator.
std::vector<PciAddress> asked_of(const Inventory& inventory, const AcceleratorRules& rules);

/// The advertised devices that are `device`, an address or a UUID, or are of its group.
std::vector<OfferedAs> offers_of(const NodeSight& sight, const std::string& device,
                                 std::optional<std::uint32_t> group);

NodePicture view_of(const NodeSight& sight, const AcceleratorRules& rules, const ModelNames& models);

}  // namespace ferry

// SPDX-License-Identifier: Apache-2.0
// A node as people and programs are told of it: one value from everything that is known, so that whatever is
// drawn, printed or counted from it agrees. Pure functions; the host is read elsewhere.
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

/// Everything that a view is made from.
struct NodeSight {
  Inventory inventory;
  VgpuInventory vgpus;
  UseReport use;
  VfioDriverTable drivers;
  MoveRecord record;
  std::vector<StuckWrite> stuck;
  std::optional<NodeState> state;                      ///< what hostd says; absent: it has said nothing
  bool hostd_runs = true;                              ///< false: `state` is not kept up to date
  std::optional<std::chrono::seconds> state_age = {};  ///< since hostd wrote it; absent: it cannot be seen
  std::optional<OfferedDevices> offered;         ///< what the device plugin says; absent: it has said nothing
  std::map<PciAddress, DeviceFacts> facts = {};  ///< of those that were read
  std::vector<std::string> notes;                ///< what could not be read beside, for people
};

/// How something stands; decides what it is drawn in.
enum class Health {
  good,
  attention,  ///< works, and somebody may want to know
  bad,        ///< somebody has to do something before it does what is wanted
};
std::string_view text(Health health);

/// The one word for an accelerator.
struct Condition {
  std::string word;  ///< "free", "in use", "use unknown", "refused"
  Health health = Health::good;
  std::string reason = {};  ///< of all that is not good; a sentence without its full stop
  /// What to do. Empty of what is bad: what else is known of it (`ferry explain`) says it.
  std::string hint = {};
};

/// Under which name a device is offered.
struct OfferedAs {
  std::string resource;
  std::string id;  ///< as the kubelet knows it
  bool healthy = true;
  bool allocated = false;
  std::string reason = {};  ///< why it is not healthy
  std::string pod = {};     ///< OfferedToKubelet::pod
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
  std::string not_offered = {};   ///< why the plugin does not offer it; empty: it does, or says nothing
  std::optional<AcceleratorState> wish;  ///< what hostd says of it
  std::optional<PriorState> prior;       ///< what it had before Ferry moved it
  /// Whether a VM could be given the group now, by the kernel's rule, and who keeps it from that.
  bool group_viable = false;
  std::vector<PciAddress> group_blockers;
  /// Whether `vfio bind` would move it if nobody used it: that one also wants the whole card, and takes no
  /// other accelerator along unasked.
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
  std::optional<Error> no_iommu;              ///< why nothing here can be given to a VM
  bool iommu = false;
  std::optional<WantedMark> wanted;
  std::optional<NodePhase> phase;                      ///< absent: hostd has said nothing
  std::optional<StateError> error;                     ///< hostd's, of no accelerator alone
  bool hostd_runs = true;                              ///< NodeSight::hostd_runs
  std::optional<std::chrono::seconds> state_age = {};  ///< NodeSight::state_age
  std::vector<std::string> unknown;                    ///< who could not be asked who uses what
  std::vector<std::string> notes;

  const AcceleratorView* find(const PciAddress& address) const;
  /// nullptr: none of `by_name` is there.
  const NamedView* find_by_name(const PciAddress& address) const;
};

/// The functions of which holders are asked: what could move with any accelerator.
std::vector<PciAddress> asked_of(const Inventory& inventory, const AcceleratorRules& rules);

/// What the plugin offers that is `device`, an address or a UUID, or of its group.
std::vector<OfferedAs> offers_of(const NodeSight& sight, const std::string& device,
                                 std::optional<std::uint32_t> group);

NodePicture view_of(const NodeSight& sight, const AcceleratorRules& rules, const ModelNames& models);

}  // namespace ferry
